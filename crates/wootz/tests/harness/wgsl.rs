//! Every kernel text that ran must parse, validate, and translate to the language of Metal.

/// Checks one text; the error is the compiler's message.
pub(crate) fn check(source: &str) -> Result<(), String> {
    wootz::gpu::to_msl(source, false).map(|_| ())
}
