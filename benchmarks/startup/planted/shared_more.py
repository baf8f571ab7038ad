import shared_ops
from burning import burn

burn(0.1)
