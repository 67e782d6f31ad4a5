//! The faces: routes, views, authentication, limits, metrics, graceful shutdown.
