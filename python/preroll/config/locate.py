"""Line and column of a key path in TOML text. Imported only when an error is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preroll.config.problems import KeyPath

if TYPE_CHECKING:
    from tree_sitter import Node

Place = tuple[int, int]
Keys = dict[KeyPath, tuple[Place, Place]]


class Places:
    """Where the keys of a text are."""

    def __init__(self, text: str) -> None:
        try:
            self._keys = _keys(text)
        except RecursionError:
            self._keys = {}  # nested beyond anything written by hand: errors without a place

    def of(self, where: KeyPath, is_about_key: bool) -> Place | None:
        """Line and column (from 1, in characters) of a key, or of its value.

        A path that is not in the text is found at its nearest ancestor that is; None if there is
        none.
        """
        for length in range(len(where), 0, -1):
            if where[:length] in self._keys:
                at_key, at_value = self._keys[where[:length]]
                return at_key if is_about_key or length < len(where) else at_value
        return None


def _keys(text: str) -> Keys:
    """Every key path of the text with the places of its key and of its value."""
    from tree_sitter import Language, Parser
    from tree_sitter_toml import language

    source = text.encode()
    root = Parser(Language(language())).parse(source).root_node
    found: Keys = {}
    counts: dict[KeyPath, int] = {}
    for node in root.children:
        if node.type == "pair":
            _pair(node, (), found)
        elif node.type in ("table", "table_array_element"):
            _table(node, found, counts)
    return found


def _table(node: Node, found: Keys, counts: dict[KeyPath, int]) -> None:
    head = next(c for c in node.named_children if c.type in KEY_TYPES)
    path = _resolved(_key(head), counts, node.type == "table_array_element")
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], (_place(head), _place(head)))
    for child in node.named_children:
        if child.type == "pair":
            _pair(child, path, found)


def _resolved(keys: KeyPath, counts: dict[KeyPath, int], is_element: bool) -> KeyPath:
    """Puts the index of the current element after each key that names an array of tables."""
    path: KeyPath = ()
    for i, key in enumerate(keys):
        path += (key,)
        if is_element and i == len(keys) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


KEY_TYPES = ("bare_key", "quoted_key", "dotted_key")


def _key(node: Node) -> tuple[str, ...]:
    if node.type == "dotted_key":
        return tuple(k for c in node.named_children for k in _key(c))
    text = _text(node)
    if node.type != "quoted_key":
        return (text,)
    import tomllib

    try:
        return (next(iter(tomllib.loads(f"{text} = 0"))),)
    except tomllib.TOMLDecodeError:
        return (text,)


def _pair(node: Node, prefix: KeyPath, found: Keys) -> None:
    if len(node.named_children) < 2:
        return
    key, value = node.named_children[0], node.named_children[1]
    names = _key(key)
    for length in range(1, len(names)):
        found.setdefault((*prefix, *names[:length]), (_place(key), _place(key)))
    path = (*prefix, *names)
    found[path] = (_place(key), _place(value))
    _value(value, path, found)


def _value(node: Node, path: KeyPath, found: Keys) -> None:
    if node.type == "inline_table":
        for child in node.named_children:
            if child.type == "pair":
                _pair(child, path, found)
    elif node.type == "array":
        elements = [c for c in node.named_children if c.type != "comment"]
        for i, child in enumerate(elements):
            found[(*path, i)] = (_place(child), _place(child))
            _value(child, (*path, i), found)


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _place(node: Node) -> Place:
    """tree-sitter counts columns in bytes; people count characters."""
    row, column = node.start_point
    line_start = node.start_byte - column
    root = node
    while root.parent is not None:
        root = root.parent
    before = (root.text or b"")[line_start - root.start_byte : node.start_byte - root.start_byte]
    return row + 1, len(before.decode(errors="replace")) + 1
