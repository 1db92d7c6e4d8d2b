//! Opening models for commands that run them.

use std::path::PathBuf;

use wootz::Device;
use wootz_lm::generate::TextModel;
use wootz_lm::models::LoadOptions;

use crate::common::Common;
use crate::source::ModelOptions;
use crate::text;

/// A model that is ready, and how it runs.
pub(crate) struct Opened {
    pub(crate) model: TextModel,
    pub(crate) path: PathBuf,
    pub(crate) device: Device,
}

/// Finds a model, fetches it if need be, and opens it on the device that is asked for.
pub(crate) fn open(options: &ModelOptions, common: &Common) -> anyhow::Result<Opened> {
    let device = common.apply()?;
    let path = options.resolve(common)?;
    common.detail(format!("Model: {}", path.display()));
    let load = LoadOptions { device: device.clone() };
    let model = TextModel::open(&path, &load)?;
    let info = model.model.info();
    common.detail(format!(
        "{}, {} parameters, {} layers, context {}",
        info.architecture,
        text::count(info.parameters),
        info.layers,
        info.context_length.map_or("of any length".to_string(), |length| length.to_string())
    ));
    for warning in &info.warnings {
        common.say(format!("Warning: {warning}."));
    }
    Ok(Opened { model, path, device })
}

/// Where and how a model computes, in a line.
pub(crate) fn setting(device: &Device, common: &Common) -> String {
    let activations = common.activations.name();
    match device.as_gpu() {
        Some(gpu) => format!("gpu:{} ({})", gpu.summary().index, gpu.summary().name),
        None => format!("cpu, {} threads, activations {activations}", wootz::threads()),
    }
}

/// The same as JSON.
pub(crate) fn setting_json(device: &Device, common: &Common) -> serde_json::Value {
    let name = match device.as_gpu() {
        Some(gpu) => format!("gpu:{}", gpu.summary().index),
        None => "cpu".to_string(),
    };
    serde_json::json!({
        "device": name, "threads": wootz::threads(), "activations": common.activations.name(),
    })
}
