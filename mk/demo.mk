demo: setup voice ## the guided tour: a real language model served, overloaded, killed, woken; then spoken to
	$(PY) examples/chat/demo.py
	$(PY) examples/voice/demo.py
