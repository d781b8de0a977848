"""What several tests share and nothing in the product needs."""
