"""Programs that workers start to carry effects out, and the keeper that ends all their processes after the effect."""
