//! commitment
