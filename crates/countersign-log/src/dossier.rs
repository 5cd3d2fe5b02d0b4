//! dossier
