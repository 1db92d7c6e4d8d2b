//! What a configuration says of quantized weights: a scheme for all, and others for some.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use wootz::quant::Scheme;

/// What is expected of a `global_scale`.
pub(super) const NO_GLOBAL_SCALE: &str = "none: a second scale for all of an nvfp4 matrix is not supported; quantize the model \
    without it, or with another mode";

/// The `quantization` of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantization {
    /// Of weights that are not named.
    pub scheme: Scheme,
    /// By the path of the layer; `None` for those that are not quantized.
    pub layers: BTreeMap<String, Option<Scheme>>,
}

impl Quantization {
    /// From a configuration; `None` if nothing is quantized.
    pub(super) fn of(config: &Value) -> Result<Option<Quantization>, String> {
        let text = config.get("text_config");
        let find = |key: &str| {
            let of_text = || text.and_then(|text| text.get(key));
            config.get(key).or_else(of_text).filter(|found| !found.is_null())
        };
        let Some(given) = find("quantization").or_else(|| find("quantization_config")) else {
            return Ok(None);
        };
        let Some(given) = given.as_object() else {
            return Err("quantization: expected an object".to_string());
        };
        if let Some(method) = given.get("quant_method").and_then(Value::as_str) {
            let scheme = match method {
                "mxfp4" => Scheme::Mxfp4,
                "mxfp8" => Scheme::Mxfp8,
                other => return Err(unsupported(other)),
            };
            return Ok(Some(Quantization { scheme, layers: BTreeMap::new() }));
        }
        let own = scheme(given, "quantization")?;
        let mut layers = BTreeMap::new();
        for (path, value) in given {
            let of_layer = match value {
                Value::Object(settings) => Some(scheme(settings, &format!("quantization.{path}"))?),
                Value::Bool(true) => Some(own),
                Value::Bool(false) => None,
                _ => continue,
            };
            layers.insert(path.clone(), of_layer);
        }
        Ok(Some(Quantization { scheme: own, layers }))
    }
}

/// What is told of a method that nothing here reads.
fn unsupported(method: &str) -> String {
    let help = match method {
        "awq" | "gptq" | "compressed-tensors" | "modelopt" | "fp8" | "bitnet" => {
            "`mlx_lm.convert` writes such a model in MLX's layout"
        }
        "bitsandbytes" | "hqq" | "quanto" | "torchao" => {
            "take the model before it was quantized, and quantize it with `wootz convert -q`"
        }
        _ => "take a model in MLX's layout, as those of mlx-community, or a .gguf file",
    };
    let expected = "MLX's own quantization, mxfp4 or mxfp8";
    format!("quantization_config.quant_method: expected {expected}, got {method:?}: {help}")
}

/// What settings say, which stand at `place` in the configuration.
fn scheme(settings: &Map<String, Value>, place: &str) -> Result<Scheme, String> {
    let number = |key: &str| match settings.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number as usize)),
            None => Err(format!("{place}.{key}: expected a number, got {value}")),
        },
    };
    if settings.get("quantize_input").is_some_and(|given| *given == Value::Bool(true)) {
        let expected = "false: products with quantized activations are not supported";
        return Err(format!("{place}.quantize_input: expected {expected}, got true"));
    }
    if settings.get("global_scale").is_some_and(|given| *given == Value::Bool(true)) {
        return Err(format!("{place}.global_scale: expected {NO_GLOBAL_SCALE}, got true"));
    }
    let mode = settings.get("mode").and_then(Value::as_str).unwrap_or("affine");
    Scheme::new(mode, number("group_size")?, number("bits")?)
        .map_err(|error| format!("{place}: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_say_where_they_are() {
        let of = |settings: Value| Quantization::of(&json!({ "quantization": settings }));
        let error = of(json!({ "bits": 7 })).unwrap_err();
        assert!(error.starts_with("quantization: [quantize] bits: expected one of"), "{error}");
        let layers = |layer: Value| json!({ "bits": 4, "group_size": 64, "lm_head": layer });
        let error = of(layers(json!({ "bits": 7 }))).unwrap_err();
        assert!(error.starts_with("quantization.lm_head: [quantize] bits"), "{error}");
        let error = of(layers(json!({ "bits": "six" }))).unwrap_err();
        assert_eq!(error, "quantization.lm_head.bits: expected a number, got \"six\"");
        let error = of(layers(json!({ "mode": "nvfp4", "quantize_input": true }))).unwrap_err();
        assert!(
            error.starts_with("quantization.lm_head.quantize_input: expected false"),
            "{error}"
        );
        let error = of(layers(json!({ "mode": "nvfp4", "global_scale": true }))).unwrap_err();
        assert!(error.starts_with("quantization.lm_head.global_scale: expected none"), "{error}");
        assert!(of(layers(json!({ "mode": "nvfp4", "global_scale": false }))).is_ok());
        let found = of(layers(json!({ "bits": 6, "group_size": 32 }))).unwrap().unwrap();
        assert_eq!(found.layers["lm_head"], Some(Scheme::Affine { group_size: 32, bits: 6 }));
    }

    #[test]
    fn a_method_that_is_not_supported_is_named_with_what_would_help() {
        for (method, help) in [
            ("awq", "mlx_lm.convert"),
            ("gptq", "mlx_lm.convert"),
            ("compressed-tensors", "mlx_lm.convert"),
            ("modelopt", "mlx_lm.convert"),
            ("fp8", "mlx_lm.convert"),
            ("bitsandbytes", "before it was quantized"),
            ("none-such", ".gguf"),
        ] {
            let config = json!({ "quantization_config": { "quant_method": method } });
            let error = Quantization::of(&config).unwrap_err();
            assert!(error.contains(&format!("got {method:?}")) && error.contains(help), "{error}");
        }
    }
}
