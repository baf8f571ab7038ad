import shared_ops
import shared_more
from burning import burn

burn(0.1)
