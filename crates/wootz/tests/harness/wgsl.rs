//! Every kernel text that ran must parse, validate, and translate to the language of Metal.

use naga::back::msl;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Checks one text; the error is the compiler's message.
pub(crate) fn check(source: &str) -> Result<(), String> {
    let module =
        naga::front::wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let capabilities = Capabilities::IMMEDIATES
        | Capabilities::SHADER_INT64
        | Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::SUBGROUP_BARRIER
        | Capabilities::COOPERATIVE_MATRIX;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| error.emit_to_string(source))?;
    let options = msl::Options { lang_version: (3, 0), ..Default::default() };
    msl::write_string(&module, &info, &options, &Default::default())
        .map(|_| ())
        .map_err(|error| format!("Metal: {error}"))
}
