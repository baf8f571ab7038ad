"""How an engine is served without an app file."""

USAGE = {
    "llama.cpp": "preroll serve llama.cpp FILE.gguf|pkg:NAME [-- FLAGS]",
    "vllm": "preroll serve vllm ORG/MODEL [-- FLAGS]",
    "sglang": "preroll serve sglang ORG/MODEL [-- FLAGS]",
    "trtllm": "preroll serve trtllm ORG/MODEL [-- FLAGS]",
    "asgi": "preroll serve asgi MODULE:APP [-- FLAGS]",
    "command": "preroll serve command -- PROGRAM ARGUMENTS, with {port} or {socket} among them",
    "url": "preroll serve url http://HOST:PORT",
}
