"""What a model directory says about itself, read before any weight is."""
