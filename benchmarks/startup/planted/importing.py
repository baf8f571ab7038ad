"""Does nothing but import: what it can find of the standard library, all beneath one module."""

import sys

if __name__ == "__main__":
    import importing

    print("ready", flush=True)
    import time

    time.sleep(3600)
else:
    import importlib
    import pkgutil
    import warnings

    # They open a browser, print, need a display, or are tests.
    NOT = {"antigravity", "this", "idlelib", "tkinter", "turtle", "turtledemo", "test", "lib2to3"}
    warnings.simplefilter("ignore")
    for name in sorted(sys.stdlib_module_names - NOT):
        try:
            package = importlib.import_module(name)
            within = getattr(package, "__path__", ())
            for one in () if name.startswith("_") else pkgutil.iter_modules(within, f"{name}."):
                if "__main__" not in one.name and "test" not in one.name:
                    importlib.import_module(one.name)
        except (ImportError, AttributeError, ValueError):
            pass  # not of this platform
