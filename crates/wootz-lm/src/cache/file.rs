//! Caches in files, with marks of earlier times beside them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use wootz::io::{Safetensors, save_safetensors_with};
use wootz::quant::Scheme;
use wootz::{Array, Device};

use super::layer::{LayerKind, LayerState};
use super::{Cache, CacheOptions, Mark};
use crate::{Error, Result};

/// Says what the file is; the number changes with what is in it.
const FORMAT: (&str, &str) = ("wootz.cache", "1");

/// The lengths of the texts at each mark: `16;32`, or `16,7;32,9` for two texts.
const MARKS: &str = "wootz.marks";

impl Cache {
    /// Writes it to a safetensors file, with texts of the caller's beside it.
    pub fn save(&self, path: impl AsRef<Path>, metadata: &BTreeMap<String, String>) -> Result<()> {
        self.save_with(path.as_ref(), &[], metadata)
    }

    /// Writes it with marks of earlier times, which it can be brought back to whatever comes later.
    pub(crate) fn save_with(
        &self,
        path: &Path,
        marks: &[Mark],
        metadata: &BTreeMap<String, String>,
    ) -> Result<()> {
        let mut arrays = BTreeMap::new();
        for (index, layer) in self.layers.iter().enumerate() {
            add(&mut arrays, &format!("{index}"), layer, self.length())?;
        }
        for (number, mark) in marks.iter().enumerate() {
            self.expect_own(mark)?;
            for (index, layer) in mark.layers.iter().enumerate() {
                let Some(layer) = layer else { continue };
                add(&mut arrays, &format!("mark.{number}.{index}"), layer, mark.length())?;
            }
        }
        let mut texts = metadata.clone();
        texts.insert(FORMAT.0.to_string(), FORMAT.1.to_string());
        texts.insert("wootz.lengths".to_string(), joined(&self.lengths));
        if !marks.is_empty() {
            let lengths: Vec<String> = marks.iter().map(|mark| joined(&mark.lengths)).collect();
            texts.insert(MARKS.to_string(), lengths.join(";"));
        }
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
        save_safetensors_with(path, &arrays, &texts)?;
        Ok(())
    }

    /// Checks that a mark is of this cache and has every layer that cannot forget at any time.
    fn expect_own(&self, mark: &Mark) -> Result<()> {
        let complete = mark.layers.len() == self.layers.len()
            && mark.lengths.len() == self.lengths.len()
            && (self.layers.iter().zip(&mark.layers))
                .all(|(layer, kept)| kept.is_some() || layer.kind.can_trim(usize::MAX));
        match complete {
            true => Ok(()),
            false => {
                let expected = "one of this cache, to go back to at any time";
                Err(Error::argument("mark", expected, "another"))
            }
        }
    }

    /// The caller's texts that [`save`](Cache::save) wrote, without the cache.
    pub(crate) fn texts(path: &Path) -> Result<BTreeMap<String, String>> {
        let file = Safetensors::open(path)?;
        match file.metadata().get(FORMAT.0) {
            Some(version) if version == FORMAT.1 => Ok(file.metadata().clone()),
            _ => Err(Error::invalid(path, "not a cache of this version")),
        }
    }

    /// Reads what [`save`](Cache::save) wrote, for layers of these kinds, and the caller's texts. Of a file
    /// that a prompt cache wrote it is the cache alone.
    pub fn load(
        path: impl AsRef<Path>,
        kinds: &[LayerKind],
        device: &Device,
    ) -> Result<(Cache, BTreeMap<String, String>)> {
        let (cache, _, texts) = Cache::load_with(path.as_ref(), kinds, device)?;
        Ok((cache, texts))
    }

    /// Reads what [`save_with`](Cache::save_with) wrote.
    pub(crate) fn load_with(
        path: &Path,
        kinds: &[LayerKind],
        device: &Device,
    ) -> Result<(Cache, Vec<Mark>, BTreeMap<String, String>)> {
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
        let separated = |text: &str, what: &str| -> Result<Vec<usize>> {
            text.split(',').map(|text| text.parse().map_err(|_| wrong(what))).collect()
        };
        let lengths =
            separated(&texts.remove("wootz.lengths").unwrap_or_default(), "damaged lengths")?;
        let marks = match texts.remove(MARKS) {
            Some(marks) => (marks.split(';'))
                .map(|text| separated(text, "damaged lengths of marks"))
                .collect::<Result<Vec<_>>>()?,
            None => Vec::new(),
        };
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
        let empty =
            Cache::new(&kinds, &options, device).map_err(|error| wrong(&error.to_string()))?;
        let found = Found { file: &file, device, read: RefCell::default() };
        let layers = |lengths: &[usize], before: &str, wanted: &dyn Fn(&LayerKind) -> bool| {
            let mut cache = Cache { lengths: lengths.to_vec(), ..empty.clone() };
            // What is due to be quantized by now was.
            cache.quantize_if_due()?;
            let (length, scheme) = (cache.length(), cache.scheme);
            let layers = cache.layers.into_iter().enumerate().map(|(index, mut layer)| {
                if !wanted(&layer.kind) {
                    return Ok(None);
                }
                let name = format!("{before}{index}");
                found
                    .restore(&mut layer, &name, length, scheme)
                    .map_err(|what| wrong(&format!("layer {name}: {what}")))?;
                Ok(Some(layer))
            });
            layers.collect::<Result<Vec<_>>>()
        };
        let all = layers(&lengths, "", &|_| true)?;
        let mut earlier: Vec<Mark> = Vec::new();
        for (number, then) in marks.into_iter().enumerate() {
            let fits = then.len() == lengths.len()
                && then.iter().zip(&lengths).all(|(then, now)| (1..=*now).contains(then));
            let mark = Mark {
                // Layers that can always forget need nothing.
                layers: match fits {
                    true => layers(&then, &format!("mark.{number}."), &|kind| {
                        !kind.can_trim(usize::MAX)
                    })?,
                    false => Vec::new(),
                },
                lengths: then,
            };
            if !fits || earlier.last().is_some_and(|last| last.length() >= mark.length()) {
                let (then, now) = (joined(&mark.lengths), joined(&lengths));
                return Err(wrong(&format!("mark {number} is at {then} of {now} tokens")));
            }
            earlier.push(mark);
        }
        found.expect_all_read().map_err(|what| wrong(&what))?;
        let cache = Cache { layers: all.into_iter().flatten().collect(), lengths, ..empty };
        Ok((cache, earlier, texts))
    }
}

/// Adds the arrays of a layer after so many tokens.
fn add(
    arrays: &mut BTreeMap<String, Array>,
    name: &str,
    layer: &LayerState,
    length: usize,
) -> Result<()> {
    for (number, array) in layer.cut(length)?.into_iter().enumerate() {
        // A file does not hold arrays without elements well; none are the same as no array.
        if array.size() > 0 {
            arrays.insert(format!("{name}.{number}"), array.contiguous()?);
        }
    }
    Ok(())
}

fn joined(lengths: &[usize]) -> String {
    lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// What a file holds, and what was read of it.
struct Found<'a> {
    file: &'a Safetensors,
    device: &'a Device,
    read: RefCell<BTreeSet<String>>,
}

impl Found<'_> {
    fn tensor(&self, name: &str) -> Result<Option<Array>> {
        if self.file.shape(name).is_none() {
            return Ok(None);
        }
        self.read.borrow_mut().insert(name.to_string());
        Ok(Some(self.file.tensor_on(name, self.device)?))
    }

    /// Puts arrays into a layer, if they are such as it has after so many tokens.
    fn restore(
        &self,
        layer: &mut LayerState,
        name: &str,
        length: usize,
        scheme: Option<Scheme>,
    ) -> Result<(), String> {
        // A cache that was cut below the length at which it was quantized stays so.
        if let Some(scheme) = scheme
            && self.file.shape(&format!("{name}.2")).is_some()
        {
            layer.quantize(scheme).map_err(|error| error.to_string())?;
        }
        let rows = match &layer.kind {
            LayerKind::Attention { window, .. } => {
                Some(window.map_or(length, |most| length.min(most)))
            }
            LayerKind::Recurrent(_) => None,
        };
        for (number, array) in layer.arrays.iter_mut().enumerate() {
            let mut shape = array.shape().to_vec();
            if let Some(rows) = rows {
                shape[2] = rows;
            }
            let expected = format!("{} of {shape:?}", array.dtype());
            let found = self.tensor(&format!("{name}.{number}"));
            let Some(found) = found.map_err(|error| error.to_string())? else {
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

    fn expect_all_read(&self) -> Result<(), String> {
        let read = self.read.borrow();
        match self.file.names().find(|name| !read.contains(*name)) {
            Some(name) => Err(format!("{name} belongs to no layer")),
            None => Ok(()),
        }
    }
}
