//! Caches in files.

use std::collections::BTreeMap;
use std::path::Path;

use wootz::io::{Safetensors, save_safetensors_with};
use wootz::quant::Scheme;
use wootz::{Array, Device};

use super::layer::{LayerKind, LayerState};
use super::{Cache, CacheOptions};
use crate::{Error, Result};

/// Says what the file is; the number changes with what is in it.
const FORMAT: (&str, &str) = ("wootz.cache", "1");

impl Cache {
    /// Writes it to a safetensors file, with texts of the caller's beside it.
    pub fn save(&self, path: impl AsRef<Path>, metadata: &BTreeMap<String, String>) -> Result<()> {
        let mut arrays = BTreeMap::new();
        for (index, layer) in self.layers.iter().enumerate() {
            for (number, array) in layer.cut(self.length())?.into_iter().enumerate() {
                // A file does not hold arrays without elements well; none are the same as no array.
                if array.size() > 0 {
                    arrays.insert(format!("{index}.{number}"), array.contiguous()?);
                }
            }
        }
        let mut texts = metadata.clone();
        let lengths: Vec<String> = self.lengths.iter().map(usize::to_string).collect();
        texts.insert(FORMAT.0.to_string(), FORMAT.1.to_string());
        texts.insert("wootz.lengths".to_string(), lengths.join(","));
        if let Some(Scheme::Affine { group_size, bits }) = self.scheme {
            texts.insert("wootz.kv_bits".to_string(), bits.to_string());
            texts.insert("wootz.kv_group_size".to_string(), group_size.to_string());
            let start = self.quantized_start.to_string();
            texts.insert("wootz.quantized_kv_start".to_string(), start);
        }
        let limits = self.layers.iter().map(|layer| match layer.kind {
            LayerKind::Attention { window: Some(window), keep, .. } => format!("{window}:{keep}"),
            _ => "-".to_string(),
        });
        texts.insert("wootz.windows".to_string(), limits.collect::<Vec<_>>().join(","));
        save_safetensors_with(path.as_ref(), &arrays, &texts)?;
        Ok(())
    }

    /// The caller's texts that [`save`](Cache::save) wrote, without the cache.
    pub(crate) fn texts(path: &Path) -> Result<BTreeMap<String, String>> {
        let file = Safetensors::open(path)?;
        match file.metadata().get(FORMAT.0) {
            Some(version) if version == FORMAT.1 => Ok(file.metadata().clone()),
            _ => Err(Error::invalid(path, "not a cache of this version")),
        }
    }

    /// Reads what [`save`](Cache::save) wrote, for layers of these kinds, and the caller's texts.
    pub fn load(
        path: impl AsRef<Path>,
        kinds: &[LayerKind],
        device: &Device,
    ) -> Result<(Cache, BTreeMap<String, String>)> {
        let path = path.as_ref();
        let file = Safetensors::open(path)?;
        let wrong = |what: &str| Error::invalid(path, what);
        let mut texts = file.metadata().clone();
        if texts.remove(FORMAT.0).as_deref() != Some(FORMAT.1) {
            return Err(wrong("not a cache of this version"));
        }
        let mut number = |key: &str| {
            let text = texts.remove(key);
            text.map(|text| text.parse::<usize>().map_err(|_| wrong("a number is damaged")))
                .transpose()
        };
        let options = CacheOptions {
            kv_bits: number("wootz.kv_bits")?,
            kv_group_size: number("wootz.kv_group_size")?.unwrap_or(64),
            quantized_kv_start: number("wootz.quantized_kv_start")?.unwrap_or(0),
            ..CacheOptions::default()
        };
        let lengths = texts.remove("wootz.lengths").unwrap_or_default();
        let lengths = lengths.split(',').map(|text| text.parse().map_err(|_| wrong("lengths")));
        let lengths = lengths.collect::<Result<Vec<usize>>>()?;
        let windows = texts.remove("wootz.windows").unwrap_or_default();
        let windows: Vec<&str> = windows.split(',').collect();
        if windows.len() != kinds.len() {
            let what = format!("of {} layers, but the model has {}", windows.len(), kinds.len());
            return Err(wrong(&what));
        }
        let options = CacheOptions { batch: lengths.len(), ..options };
        let limited = kinds.iter().zip(&windows).map(|(kind, text)| {
            let Some((window, keep)) = text.split_once(':') else { return Ok(kind.clone()) };
            let parsed = window.parse().ok().zip(keep.parse().ok());
            let (window, keep) = parsed.ok_or_else(|| wrong("windows"))?;
            Ok(kind.limited(Some(window), keep))
        });
        let kinds = limited.collect::<Result<Vec<_>>>()?;
        let mut cache =
            Cache::new(&kinds, &options, device).map_err(|error| wrong(&error.to_string()))?;
        cache.lengths = lengths;
        let length = cache.length();
        // What is due to be quantized by now was, and else the file says that it was not.
        cache.quantize_if_due()?;
        for (index, layer) in cache.layers.iter_mut().enumerate() {
            restore(layer, length, |number| {
                let name = format!("{index}.{number}");
                if file.shape(&name).is_none() {
                    return Ok(None);
                }
                Ok(Some(file.tensor_on(&name, device)?))
            })
            .map_err(|what| wrong(&format!("layer {index}: {what}")))?;
        }
        Ok((cache, texts))
    }
}

/// Puts the arrays of a file into a layer, if they are such as it has after so many tokens.
fn restore(
    layer: &mut LayerState,
    length: usize,
    mut read: impl FnMut(usize) -> Result<Option<Array>>,
) -> Result<(), String> {
    let rows = match &layer.kind {
        LayerKind::Attention { window, .. } => Some(window.map_or(length, |most| length.min(most))),
        LayerKind::Recurrent(_) => None,
    };
    for (number, array) in layer.arrays.iter_mut().enumerate() {
        let mut shape = array.shape().to_vec();
        if let Some(rows) = rows {
            shape[2] = rows;
        }
        let expected = format!("{} of {shape:?}", array.dtype());
        let Some(found) = read(number).map_err(|error| error.to_string())? else {
            match shape.contains(&0) {
                true => continue,
                false => return Err(format!("expected {expected}, got nothing")),
            }
        };
        if found.shape() != shape || found.dtype() != array.dtype() {
            let (dtype, shape) = (found.dtype(), found.shape());
            return Err(format!("expected {expected}, got {dtype} of {shape:?}"));
        }
        // What is mapped is never written in place.
        *array = wootz::copy(&found).map_err(|error| error.to_string())?;
    }
    Ok(())
}
