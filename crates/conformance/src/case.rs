//! The recorded cases as they stand in `cases.jsonl`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use crate::tensor::{self, Kind, Tensor, Tensors};

/// One recorded call.
#[derive(Clone, Debug)]
pub struct Case {
    /// Content hash.
    pub id: String,
    /// MLX's name of the operation.
    pub op: String,
    /// 1 language models, 2 general use, 3 rare.
    pub tier: usize,
    /// Arrays and weak scalars by parameter name.
    pub inputs: Map<String, Value>,
    /// Static values by parameter name.
    pub attrs: Map<String, Value>,
    /// Names of the expected outputs.
    pub outputs: Vec<String>,
    /// How outputs are compared.
    pub class: Class,
    /// One tolerance for each output.
    pub tolerances: Vec<Tolerance>,
    /// The gradient check.
    pub gradient: Option<Gradient>,
    /// The line this was read from.
    pub line: String,
}

/// How outputs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Equal values.
    Exact,
    /// Within a tolerance.
    Close,
    /// Equal as sets on both sides of the pivot.
    Set,
    /// Factors up to sign or phase.
    Sign,
    /// The call must be refused.
    Error,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 5] = [Class::Exact, Class::Close, Class::Set, Class::Sign, Class::Error];

    /// The class of a name.
    pub fn from_name(name: &str) -> Result<Class> {
        let found = Class::ALL.into_iter().find(|class| class.name() == name);
        found.with_context(|| {
            let known = Class::ALL.map(Class::name).join(", ");
            format!("unknown class {name:?}; there are {known}")
        })
    }

    /// The word for it in files of cases.
    pub fn name(self) -> &'static str {
        match self {
            Class::Exact => "exact",
            Class::Close => "close",
            Class::Set => "set",
            Class::Sign => "sign",
            Class::Error => "error",
        }
    }
}

/// `|x - e| <= atol + rtol·|e|`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// The part that grows with the expected value.
    pub rtol: f64,
    /// The part that does not.
    pub atol: f64,
}

/// A recorded vector-Jacobian product.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// Inputs, `name` or `name[i]`.
    pub wrt: Vec<String>,
    /// One for each output; `None` takes no part.
    pub cotangents: Vec<Option<String>>,
    /// One for each of `wrt`.
    pub gradients: Vec<String>,
    /// One for each of `wrt`.
    pub tolerances: Vec<Tolerance>,
}

/// A folder of cases.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    /// The cases in the order of the file.
    pub cases: Vec<Case>,
    /// Everything they name.
    pub tensors: Tensors,
}

impl Folder {
    /// Reads `cases.jsonl` and `tensors.safetensors`.
    pub fn read(folder: &Path) -> Result<Folder> {
        let path = folder.join("cases.jsonl");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let cases = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(number, line)| {
                Case::parse(line).with_context(|| format!("{} line {}", path.display(), number + 1))
            })
            .collect::<Result<Vec<_>>>()?;
        let tensors = tensor::read(&folder.join("tensors.safetensors"))?;
        for case in &cases {
            for name in case.tensor_names() {
                ensure!(tensors.contains_key(&name), "case {} names the absent {name}", case.id);
            }
        }
        Ok(Folder { cases, tensors })
    }

    /// Writes both files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let lines: String = self.cases.iter().map(|case| format!("{}\n", case.line)).collect();
        std::fs::write(folder.join("cases.jsonl"), lines)?;
        tensor::write(&folder.join("tensors.safetensors"), &self.tensors)
    }
}

impl Case {
    fn parse(line: &str) -> Result<Case> {
        let value: Value = serde_json::from_str(line)?;
        let map = |name: &str| value[name].as_object().cloned().unwrap_or_default();
        let error = value["error"].as_bool().unwrap_or(false);
        let class = Class::from_name(value["class"].as_str().unwrap_or_default())?;
        ensure!(error == (class == Class::Error), "class and error flag disagree");
        let gradient = match &value["vjp"] {
            Value::Null => None,
            vjp => Some(Gradient {
                wrt: serde_json::from_value(vjp["wrt"].clone())?,
                cotangents: serde_json::from_value(vjp["cotangents"].clone())?,
                gradients: serde_json::from_value(vjp["grads"].clone())?,
                tolerances: tolerances(&vjp["tol"])?,
            }),
        };
        let outputs: Vec<String> = match &value["out"] {
            Value::Null => Vec::new(),
            out => serde_json::from_value(out.clone())?,
        };
        let tolerances = tolerances(&value["tol"])?;
        ensure!(
            matches!(class, Class::Exact | Class::Error) || tolerances.len() == outputs.len(),
            "one tolerance for each output is needed"
        );
        if let Some(Gradient { wrt, cotangents, gradients, tolerances }) = &gradient {
            let agree = wrt.len() == gradients.len() && wrt.len() == tolerances.len();
            ensure!(agree && cotangents.len() == outputs.len(), "vjp lists differ in length");
        }
        let text = |name: &str| -> Result<String> {
            Ok(value[name].as_str().with_context(|| format!("no {name}"))?.to_string())
        };
        Ok(Case {
            id: text("id")?,
            op: text("op")?,
            tier: value["tier"].as_u64().context("no tier")? as usize,
            inputs: map("inputs"),
            attrs: map("attrs"),
            outputs,
            class,
            tolerances,
            gradient,
            line: line.to_string(),
        })
    }

    /// Every tensor that the case names, in the order of their names.
    pub fn tensor_names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.inputs.values().for_each(|value| input_names(value, &mut names));
        for item in self.attrs.get("index").and_then(Value::as_array).into_iter().flatten() {
            names.extend(item["array"].as_str().map(String::from));
        }
        names.extend(self.outputs.iter().cloned());
        if let Some(gradient) = &self.gradient {
            names.extend(gradient.cotangents.iter().flatten().cloned());
            names.extend(gradient.gradients.iter().cloned());
        }
        names
    }

    /// Whether a tensor, scalar or dtype attribute of the case is of this kind.
    pub fn mentions(&self, kind: Kind, tensors: &Tensors) -> bool {
        let dtype = |name: &str| self.attrs.get(name).and_then(Value::as_str) == Some(kind.name());
        let complex_scalar = |value: &Value| value["type"].as_str() == Some("complex");
        dtype("dtype")
            || self.tensor_names().iter().any(|name| tensors[name].kind == kind)
            || kind == Kind::Complex64 && self.inputs.values().any(complex_scalar)
    }
}

/// What a case should give.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The outputs.
    pub outputs: Vec<Tensor>,
    /// The gradients.
    pub gradients: Vec<Tensor>,
}

impl Expected {
    /// Looks up the tensors of a case.
    pub fn of(case: &Case, tensors: &Tensors) -> Expected {
        let find =
            |names: &[String]| names.iter().map(|name| tensors[name].clone()).collect::<Vec<_>>();
        let gradients = case.gradient.as_ref().map_or(Vec::new(), |g| find(&g.gradients));
        Expected { outputs: find(&case.outputs), gradients }
    }
}

fn tolerances(value: &Value) -> Result<Vec<Tolerance>> {
    let one = |item: &Value| -> Result<Tolerance> {
        let number = |name: &str| item[name].as_f64().with_context(|| format!("no {name}"));
        Ok(Tolerance { rtol: number("rtol")?, atol: number("atol")? })
    };
    value.as_array().map_or(Ok(Vec::new()), |items| items.iter().map(one).collect())
}

fn input_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(name) => {
            names.insert(name.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| input_names(item, names)),
        _ => names.extend(value["t"].as_str().map(String::from)),
    }
}
