from burning import burn

burn(0.3)
import private_tables
