//! A case's arguments as the operation table reads them. Every argument that a case carries must be
//! read: one that the table does not know makes the case unknown.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};
use wootz::{Arg, Array, Axes, DType, Device, Scalar};

use crate::case::Case;
use crate::tensor::{Tensor, Tensors};

/// Why a call gave no result.
#[derive(Debug)]
pub enum Refusal {
    /// The table does not know the operation or an argument.
    Unknown(String),
    /// The value cannot be said in wootz's types, such as a negative number of parts.
    Unsayable(String),
    /// wootz's own error.
    Wootz(wootz::Error),
}

impl From<wootz::Error> for Refusal {
    fn from(error: wootz::Error) -> Refusal {
        Refusal::Wootz(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(what) => write!(f, "unknown: {what}"),
            Refusal::Unsayable(what) => write!(f, "not a value of the argument's type: {what}"),
            Refusal::Wootz(error) => write!(f, "{error}"),
        }
    }
}

/// What a table row returns: MLX's results in MLX's order.
pub type Outcome = Result<Vec<Array>, Refusal>;

/// One input parameter.
#[derive(Clone)]
pub enum Input {
    /// An array or a weak scalar.
    One(Arg),
    /// A list parameter.
    Many(Vec<Arg>),
}

/// One item of a subscript.
#[derive(Clone)]
pub enum Subscript {
    /// Removes the axis.
    Int(i64),
    /// Python's slice.
    Slice(Option<i64>, Option<i64>, Option<i64>),
    /// Adds an axis of length 1.
    NewAxis,
    /// All axes that no other item names.
    Ellipsis,
    /// Integers that are looked up.
    Array(Array),
}

/// The arguments of one call.
pub struct Call<'a> {
    inputs: BTreeMap<String, Input>,
    attrs: &'a Map<String, Value>,
    index: Vec<Subscript>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Call<'a> {
    /// Builds the inputs of a case on a device, as views where the case says so.
    pub fn new(case: &'a Case, tensors: &Tensors, device: &Device) -> Result<Call<'a>, Refusal> {
        let mut inputs = BTreeMap::new();
        for (name, value) in &case.inputs {
            let input = match value {
                Value::Array(items) => Input::Many(
                    items
                        .iter()
                        .map(|item| argument(item, tensors, device))
                        .collect::<Result<_, _>>()?,
                ),
                value => Input::One(argument(value, tensors, device)?),
            };
            inputs.insert(name.clone(), input);
        }
        let items = case.attrs.get("index").and_then(Value::as_array);
        let index = items
            .into_iter()
            .flatten()
            .map(|item| subscript(item, tensors, device))
            .collect::<Result<_, _>>()?;
        Ok(Call { inputs, attrs: &case.attrs, index, read: RefCell::default() })
    }

    /// The array that a gradient path, `name` or `name[i]`, points at.
    pub fn at_path(&self, path: &str) -> Result<Array, Refusal> {
        let (name, index) = split_path(path);
        let found = match (self.inputs.get(name), index) {
            (Some(Input::One(arg)), None) => Some(arg),
            (Some(Input::Many(args)), Some(index)) => args.get(index),
            _ => None,
        };
        match found {
            Some(Arg::Array(array)) => Ok(array.clone()),
            _ => Err(Refusal::Unknown(format!("gradient path {path}"))),
        }
    }

    /// The same call with other arrays at some paths.
    pub fn with(&self, paths: &[String], arrays: &[Array]) -> Call<'a> {
        let mut inputs = self.inputs.clone();
        for (path, array) in paths.iter().zip(arrays) {
            let (name, index) = split_path(path);
            match (inputs.get_mut(name), index) {
                (Some(Input::One(arg)), None) => *arg = array.into(),
                (Some(Input::Many(args)), Some(index)) => args[index] = array.into(),
                _ => {}
            }
        }
        Call { inputs, attrs: self.attrs, index: self.index.clone(), read: RefCell::default() }
    }

    /// The names of arguments that were not read.
    pub fn unread(&self) -> Vec<&str> {
        let read = self.read.borrow();
        let names = self.inputs.keys().chain(self.attrs.keys());
        names.map(String::as_str).filter(|name| !read.contains(*name)).collect()
    }

    /// Says that an argument need not be honoured, such as a hint.
    pub fn ignore(&self, name: &str) {
        self.note(name);
    }

    /// Whether an argument is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.inputs.contains_key(name) || self.attrs.get(name).is_some_and(|value| !value.is_null())
    }

    /// An array or weak scalar. A number among the static values is a weak scalar too.
    pub fn arg(&self, name: &str) -> Result<Arg, Refusal> {
        self.arg_opt(name)?.ok_or_else(|| Refusal::Unknown(format!("no input {name}")))
    }

    /// An array or weak scalar that may be missing.
    pub fn arg_opt(&self, name: &str) -> Result<Option<Arg>, Refusal> {
        self.note(name);
        match (self.inputs.get(name), self.attrs.get(name)) {
            (Some(Input::One(arg)), _) => Ok(Some(arg.clone())),
            (Some(Input::Many(_)), _) => Err(Refusal::Unknown(format!("{name} is a list"))),
            (None, None | Some(Value::Null)) => Ok(None),
            (None, Some(value)) => Ok(Some(Arg::Scalar(number(name, value)?))),
        }
    }

    /// A weak scalar.
    pub fn scalar(&self, name: &str) -> Result<Scalar, Refusal> {
        self.scalar_opt(name)?.ok_or_else(|| Refusal::Unknown(format!("no scalar {name}")))
    }

    /// A weak scalar that may be missing.
    pub fn scalar_opt(&self, name: &str) -> Result<Option<Scalar>, Refusal> {
        match self.arg_opt(name)? {
            None => Ok(None),
            Some(Arg::Scalar(scalar)) => Ok(Some(scalar)),
            Some(Arg::Array(_)) => Err(Refusal::Unknown(format!("{name} is an array"))),
        }
    }

    /// An array; a weak scalar becomes one of its own dtype.
    pub fn array(&self, name: &str) -> Result<Array, Refusal> {
        self.array_opt(name)?.ok_or_else(|| Refusal::Unknown(format!("no input {name}")))
    }

    /// An array that may be missing.
    pub fn array_opt(&self, name: &str) -> Result<Option<Array>, Refusal> {
        self.arg_opt(name)?.map(to_array).transpose()
    }

    /// A list of arrays.
    pub fn arrays(&self, name: &str) -> Result<Vec<Array>, Refusal> {
        self.note(name);
        match self.inputs.get(name) {
            Some(Input::Many(args)) => args.iter().cloned().map(to_array).collect(),
            _ => Err(Refusal::Unknown(format!("no list {name}"))),
        }
    }

    /// The subscript of an indexing operation.
    pub fn index(&self) -> &[Subscript] {
        self.note("index");
        &self.index
    }

    /// A static integer.
    pub fn int(&self, name: &str) -> Result<i64, Refusal> {
        self.int_opt(name)?.ok_or_else(|| Refusal::Unknown(format!("no integer {name}")))
    }

    /// A static integer that may be null.
    pub fn int_opt(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let value = self.value(name);
        match value {
            None => Ok(None),
            Some(value) => value
                .as_i64()
                .map(Some)
                .ok_or_else(|| Refusal::Unknown(format!("{name} = {value} is no integer"))),
        }
    }

    /// A static word of 64 bits; a negative number is its two's complement.
    pub fn word64(&self, name: &str) -> Result<u64, Refusal> {
        let value = self.value(name);
        let word = value.and_then(|value| value.as_u64().or(value.as_i64().map(|v| v as u64)));
        word.ok_or_else(|| Refusal::Unknown(format!("no word {name}")))
    }

    /// A static count or length; a negative one cannot be said in wootz's types.
    pub fn size(&self, name: &str) -> Result<usize, Refusal> {
        sayable(name, self.int(name)?)
    }

    /// A static integer or list of integers; `None` if null.
    pub fn ints_opt(&self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let list = match value {
            Value::Array(items) => items.iter().map(Value::as_i64).collect::<Option<Vec<_>>>(),
            one => one.as_i64().map(|one| vec![one]),
        };
        let list = list.ok_or_else(|| Refusal::Unknown(format!("{name} = {value}")))?;
        Ok(Some(list))
    }

    /// A static integer or list of integers.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, Refusal> {
        self.ints_opt(name)?.ok_or_else(|| Refusal::Unknown(format!("no integers {name}")))
    }

    /// Whether a static value is a list.
    pub fn is_list(&self, name: &str) -> bool {
        self.attrs.get(name).is_some_and(Value::is_array)
    }

    /// A static shape.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, Refusal> {
        self.ints(name)?.into_iter().map(|length| sayable(name, length)).collect()
    }

    /// Axes of a reduction; null is all of them.
    pub fn axes(&self, name: &str) -> Result<Axes, Refusal> {
        Ok(self.ints_opt(name)?.map_or(Axes::All, Axes::These))
    }

    /// A static number.
    pub fn float(&self, name: &str) -> Result<f64, Refusal> {
        self.value(name)
            .and_then(float)
            .ok_or_else(|| Refusal::Unknown(format!("no number {name}")))
    }

    /// A static truth value.
    pub fn flag(&self, name: &str) -> Result<bool, Refusal> {
        self.value(name)
            .and_then(Value::as_bool)
            .ok_or_else(|| Refusal::Unknown(format!("no flag {name}")))
    }

    /// A static word.
    pub fn word(&self, name: &str) -> Result<&str, Refusal> {
        self.value(name)
            .and_then(Value::as_str)
            .ok_or_else(|| Refusal::Unknown(format!("no word {name}")))
    }

    /// A static dtype.
    pub fn dtype(&self, name: &str) -> Result<DType, Refusal> {
        self.dtype_opt(name)?.ok_or_else(|| Refusal::Unknown(format!("no dtype {name}")))
    }

    /// A static dtype; null is the usual one.
    pub fn dtype_or(&self, name: &str, usual: DType) -> Result<DType, Refusal> {
        Ok(self.dtype_opt(name)?.unwrap_or(usual))
    }

    /// A static dtype that may be null.
    pub fn dtype_opt(&self, name: &str) -> Result<Option<DType>, Refusal> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let dtype = value.as_str().and_then(DType::from_name);
        dtype.map(Some).ok_or_else(|| Refusal::Unknown(format!("dtype {value}")))
    }

    /// The static value as it stands; `None` if missing or null.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.note(name);
        self.attrs.get(name).filter(|value| !value.is_null())
    }

    fn note(&self, name: &str) {
        self.read.borrow_mut().insert(name.to_string());
    }
}

/// A word that an enum of wootz does not have.
pub fn unsayable<T>(name: &str, value: impl fmt::Display) -> Result<T, Refusal> {
    Err(Refusal::Unsayable(format!("{name} = {value}")))
}

/// A length or count.
pub fn sayable(name: &str, value: i64) -> Result<usize, Refusal> {
    usize::try_from(value).or_else(|_| unsayable(name, value))
}

/// Puts recorded elements on a device.
pub fn upload(tensor: &Tensor, device: &Device) -> Result<Array, Refusal> {
    let dtype = tensor.kind.dtype();
    Ok(Array::from_bytes_on(&tensor.bytes, &tensor.shape, dtype, device)?)
}

fn to_array(arg: Arg) -> Result<Array, Refusal> {
    match arg {
        Arg::Array(array) => Ok(array),
        Arg::Scalar(scalar) => Ok(Array::scalar(scalar, scalar.default_dtype())?),
    }
}

fn split_path(path: &str) -> (&str, Option<usize>) {
    match path.split_once('[') {
        None => (path, None),
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse().ok()),
    }
}

fn argument(value: &Value, tensors: &Tensors, device: &Device) -> Result<Arg, Refusal> {
    if let Some(name) = value.as_str() {
        return Ok(upload(&tensors[name], device)?.into());
    }
    if let Some(name) = value["t"].as_str() {
        let mut array = upload(&tensors[name], device)?;
        for step in value["view"].as_array().into_iter().flatten() {
            array = view(&array, &step[0], &step[1])?;
        }
        return Ok(array.into());
    }
    let scalar = &value["scalar"];
    let kind = value["type"].as_str().unwrap_or_default();
    let unknown = || Refusal::Unknown(format!("scalar {value}"));
    Ok(Arg::Scalar(match kind {
        "bool" => Scalar::Bool(scalar.as_bool().ok_or_else(unknown)?),
        "complex" => {
            let part = |index: usize| float(&scalar[index]).ok_or_else(unknown);
            Scalar::Complex(wootz::Complex32::new(part(0)? as f32, part(1)? as f32))
        }
        "int" => Scalar::Int(scalar.as_i64().ok_or_else(unknown)?),
        "float" => Scalar::Float(float(scalar).ok_or_else(unknown)?),
        _ => return Err(unknown()),
    }))
}

/// One step that makes a view.
fn view(array: &Array, kind: &Value, argument: &Value) -> Result<Array, Refusal> {
    let unknown = || Refusal::Unknown(format!("view {kind} {argument}"));
    let list = || -> Option<Vec<i64>> { argument.as_array()?.iter().map(Value::as_i64).collect() };
    match kind.as_str() {
        Some("transpose") => Ok(wootz::transpose_axes(array, &list().ok_or_else(unknown)?)?),
        Some("broadcast_to") => {
            let shape = list().ok_or_else(unknown)?;
            let shape = shape.into_iter().map(|length| sayable("shape", length));
            Ok(wootz::broadcast_to(array, &shape.collect::<Result<Vec<_>, _>>()?)?)
        }
        Some("slice") => {
            let items = argument.as_array().ok_or_else(unknown)?;
            let (mut start, mut stop, mut step) = (Vec::new(), Vec::new(), Vec::new());
            for (item, &length) in items.iter().zip(array.shape()) {
                let python = |index: usize| item[index].as_i64();
                let (from, to, by) = normal_slice(python(0), python(1), python(2), length);
                start.push(from);
                stop.push(to);
                step.push(by);
            }
            Ok(wootz::slice(array, &start, &stop, &step)?)
        }
        _ => Err(unknown()),
    }
}

/// Python's slice of an axis in the terms of `wootz::slice`, where a negative step stops before
/// `stop - 1` so that 0 reaches the first element.
fn normal_slice(
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
    length: usize,
) -> (usize, usize, isize) {
    let (length, step) = (length as i64, step.unwrap_or(1));
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clip = |index: i64| if index < 0 { index + length } else { index }.clamp(low, high);
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (start, stop) = (start.map_or(first, clip), stop.map_or(last, clip));
    if step > 0 {
        (start as usize, stop.max(start) as usize, step as isize)
    } else if start <= stop {
        // Nothing is left, which a rising slice says without a start before the first element.
        (0, 0, 1)
    } else {
        (start as usize, (stop + 1) as usize, step as isize)
    }
}

fn subscript(item: &Value, tensors: &Tensors, device: &Device) -> Result<Subscript, Refusal> {
    if let Some(index) = item["int"].as_i64() {
        Ok(Subscript::Int(index))
    } else if let Some(parts) = item["slice"].as_array() {
        let part = |index: usize| parts.get(index).and_then(Value::as_i64);
        Ok(Subscript::Slice(part(0), part(1), part(2)))
    } else if item["newaxis"] == true {
        Ok(Subscript::NewAxis)
    } else if item["ellipsis"] == true {
        Ok(Subscript::Ellipsis)
    } else if let Some(name) = item["array"].as_str() {
        Ok(Subscript::Array(upload(&tensors[name], device)?))
    } else {
        Err(Refusal::Unknown(format!("subscript {item}")))
    }
}

/// A float, which JSON cannot always write as a number.
fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("nan") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

/// A static number as a weak scalar.
fn number(name: &str, value: &Value) -> Result<Scalar, Refusal> {
    match value {
        Value::Bool(value) => Ok(Scalar::Bool(*value)),
        Value::Number(number) if number.is_i64() => Ok(Scalar::Int(number.as_i64().unwrap_or(0))),
        other => float(other)
            .map(Scalar::Float)
            .ok_or_else(|| Refusal::Unknown(format!("{name} = {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::normal_slice;

    #[test]
    fn slices_follow_python() {
        assert_eq!(normal_slice(None, None, None, 5), (0, 5, 1));
        assert_eq!(normal_slice(Some(-3), Some(-1), None, 5), (2, 4, 1));
        assert_eq!(normal_slice(None, None, Some(-1), 5), (4, 0, -1));
        assert_eq!(normal_slice(Some(5), None, Some(-2), 5), (4, 0, -2));
        assert_eq!(normal_slice(Some(3), Some(0), Some(-1), 5), (3, 1, -1));
        assert_eq!(normal_slice(Some(1), Some(3), Some(-1), 5), (0, 0, 1));
        assert_eq!(normal_slice(None, None, Some(-1), 0), (0, 0, 1));
        assert_eq!(normal_slice(Some(9), None, None, 5), (5, 5, 1));
    }
}
