from burning import burn

burn(0.15)
