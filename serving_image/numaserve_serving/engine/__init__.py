"""From texts to vectors: verify the artifact, tokenise, schedule, infer."""
