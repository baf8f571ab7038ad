demo: setup ## the guided tour: a real language model served, overloaded, killed, woken
	$(PY) examples/chat/demo.py
