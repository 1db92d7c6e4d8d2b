//! Text to tokens and back, and chat templates.
