from burning import burn

burn(0.2)
import shared_ops
import private_codec
