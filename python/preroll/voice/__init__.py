"""Speech: endpoints for voice clients, and the model stages under them."""
