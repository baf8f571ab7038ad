"""The process of one replica of a Python stage.

Runs on Python 3.10 and newer with uvicorn alone; what is imported here must stay that way.
"""
