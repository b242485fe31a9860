//! The suite against a real API server.
