"""A stage that says what it was told: at once, word by word, or in a conversation."""

from collections.abc import Iterator

from preroll import Session, Stage


class Echo(Stage):
    def __call__(self, body: dict[str, str]) -> dict[str, str]:
        return {"text": body["text"]}

    def stream(self, body: dict[str, str]) -> Iterator[dict[str, str]]:
        for word in body["text"].split():
            yield {"text": word}

    async def session(self, socket: Session) -> None:
        async for message in socket:
            await socket.send(message)
