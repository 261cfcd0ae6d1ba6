//! OpenAPI 3.1 of the service, generated from its schema.
