"""Where processes run: one contract (base), one implementation per place."""
