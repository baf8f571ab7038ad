"""Copied, as `sitecustomize`, in front of one run's Python path: one module becomes a stub.

Stands alone: it runs inside the command's own interpreter, whatever that is (3.8 or newer), so it
imports nothing but the standard library and must never fail.

A stub answers to everything that an importing module does at its top level: attributes, calls,
subclasses, decorators, iteration, `with`. Numbers are 0, containers empty, conditions false.
"""

# mypy: ignore-errors
import abc
import importlib.machinery
import importlib.util
import os
import sys
import types

ERRORS = ("Error", "Exception", "Warning")
VERSION = "0.0.0"


def _is_private(name):
    return name.startswith("__") and name.endswith("__")


class Anything(abc.ABCMeta):
    """The type of stub classes. It is an ABCMeta, so that a class may inherit from both kinds."""

    def __getattr__(cls, name):
        if _is_private(name) or name.startswith("_abc_"):
            raise AttributeError(name)
        made = make(name, cls.__module__)
        setattr(cls, name, made)
        return made

    def __call__(cls, *args, **kwargs):
        if "_preroll_stub" in cls.__dict__ and len(args) == 1 and not kwargs:
            (what,) = args
            if isinstance(what, (types.FunctionType, type)) and not isinstance(what, Anything):
                return what  # used as a decorator
        return super().__call__(*args, **kwargs)

    def __getitem__(cls, key):
        return cls

    def __iter__(cls):
        return iter(())

    def __len__(cls):
        return 0

    def __bool__(cls):
        return False

    def __contains__(cls, item):
        return False

    def __lt__(cls, other):
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __enter__(cls):
        return cls

    def __exit__(cls, *exception):
        return False


def _same(self, *args, **kwargs):
    return self


class Stub(metaclass=Anything):
    """An object of a module that is not there."""

    _preroll_stub = True

    def __init__(self, *args, **kwargs):
        super().__init__()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__()

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        """A field of a stub's type takes anything."""
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __getattr__(self, name):
        if _is_private(name):
            raise AttributeError(name)
        return make(name, type(self).__module__)()

    def __call__(self, *args, **kwargs):
        (what,) = args if len(args) == 1 and not kwargs else (None,)
        return what if isinstance(what, (types.FunctionType, type)) else self

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __bool__(self):
        return False

    def __contains__(self, item):
        return False

    def __int__(self):
        return 0

    __index__ = __int__

    def __float__(self):
        return 0.0

    def __str__(self):
        return ""

    def __lt__(self, other):
        return False

    __gt__ = __le__ = __ge__ = __lt__
    __getitem__ = __enter__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = _same
    __rmul__ = __truediv__ = __rtruediv__ = __or__ = __and__ = __neg__ = _same

    def __setitem__(self, key, value):
        pass

    def __exit__(self, *exception):
        return False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        return False

    def __await__(self):
        yield from ()
        return self


def make(name, module):
    """A stub class; one that is named like an exception can be raised and caught."""
    bases = (Exception,) if name.endswith(ERRORS) else (Stub,)
    body = {"__module__": module, "_preroll_stub": True}
    return Anything(name, bases, body) if bases[0] is Stub else type(name, bases, body)


class StubModule(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name):
        if _is_private(name):
            raise AttributeError(name)
        made = make(name, self.__name__)
        setattr(self, name, made)
        return made


class Finder:
    """Finds `target` and everything below it before anything else can; imports it as a stub."""

    def __init__(self, target, record):
        self.target = target
        self.record = record

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.target and not fullname.startswith(self.target + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin="stub", is_package=True)

    def create_module(self, spec):
        module = StubModule(spec.name)
        module.__version__ = VERSION
        module.__all__ = []
        return module

    def exec_module(self, module):
        try:
            with open(self.record, "a") as file:  # noqa: PTH123
                file.write("%d %s\n" % (os.getpid(), module.__name__))  # noqa: UP031
        except OSError:
            pass


def install(target, record):
    """Installs the stub, then lets the sitecustomize that this file hides run as usual."""
    sys.meta_path.insert(0, Finder(target, record))
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]  # noqa: PTH100
    try:
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
        if spec is not None and spec.loader is not None:
            hidden = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(hidden)
    except Exception as error:
        print("sitecustomize:", error, file=sys.stderr)  # noqa: T201
