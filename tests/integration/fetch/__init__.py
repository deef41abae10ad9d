"""Fetching from real servers: S3, an OCI registry and HTTPS, with TLS, credentials and connections that break."""
