"""Pure manifests: what each child of an EncoderDeployment looks like."""
