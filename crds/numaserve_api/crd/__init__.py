"""The CustomResourceDefinition, generated from the pydantic models: structural schema plus CEL rules."""
