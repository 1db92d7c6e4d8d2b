//! The harness: multiplies each operation's cases by layouts, dtypes and devices, and checks
//! results, gradients, determinism and where the work was done.

#[cfg(feature = "gpu")]
pub(crate) mod bytes;
pub(crate) mod cpu;
pub(crate) mod data;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
pub(crate) mod gradients;
pub(crate) mod layouts;
#[cfg(feature = "gpu")]
pub(crate) mod metal;
#[cfg(feature = "gpu")]
pub(crate) mod networks;
pub(crate) mod reference;
#[cfg(feature = "gpu")]
pub(crate) mod report;
pub(crate) mod tolerance;
#[cfg(feature = "gpu")]
pub(crate) mod traffic;
pub(crate) mod transforms;
pub(crate) mod watchdog;
#[cfg(feature = "gpu")]
pub(crate) mod wgsl;

use std::panic::{AssertUnwindSafe, catch_unwind};

use data::{Host, Random};
use layouts::Layout;
use transforms::Transform;
use wootz::op::{Case, CaseInput, Entry, Tolerance};
use wootz::{Array, DType, Device};

/// A case to run, with whom it belongs to and what it should give.
pub(crate) struct Subject {
    pub(crate) op: &'static str,
    pub(crate) case: Case,
    pub(crate) reference: Option<reference::Function>,
    /// Whether its inputs can be given other lengths: the first case of an elementwise operation.
    pub(crate) any_size: bool,
    /// Whether it is the first case of its operation, which is enough for some checks.
    pub(crate) first: bool,
}

/// Every case of every operation, and those the harness adds.
pub(crate) fn subjects(entries: Vec<Entry>) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for Entry { name, cases } in entries {
        for (number, case) in cases.into_iter().enumerate() {
            let reference = reference::elementwise(name);
            let any_size = number == 0 && reference.is_some();
            subjects.push(Subject { op: name, case, reference, any_size, first: number == 0 });
        }
    }
    for reference::Known { op, case, function } in reference::cases() {
        let (reference, any_size, first) = (Some(function), false, false);
        subjects.push(Subject { op, case, reference, any_size, first });
    }
    subjects
}

/// What is wrong, readable.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) op: &'static str,
    pub(crate) place: String,
    pub(crate) message: String,
}

/// Collects failures and counts checks of one operation.
pub(crate) struct Log {
    pub(crate) op: &'static str,
    pub(crate) case: String,
    pub(crate) checks: usize,
    pub(crate) failures: Vec<Failure>,
    /// What transforms were found to do.
    pub(crate) transforms: Vec<(Transform, &'static str)>,
}

impl Log {
    pub(crate) fn new(subject: &Subject) -> Log {
        Log::of(subject.op, subject.case.label.clone())
    }

    pub(crate) fn of(op: &'static str, case: String) -> Log {
        Log { op, case, checks: 0, failures: Vec::new(), transforms: Vec::new() }
    }

    /// Notes what a transform does, for the table.
    pub(crate) fn note(&mut self, transform: Transform, what: &'static str) {
        self.transforms.push((transform, what));
    }

    /// Notes the same for all that differentiate.
    pub(crate) fn note_gradients(&mut self, what: &'static str) {
        for transform in [Transform::Vjp, Transform::Jvp, Transform::SecondOrder] {
            self.note(transform, what);
        }
    }

    /// Notes one check's outcome.
    pub(crate) fn check(&mut self, place: &str, outcome: Result<(), String>) -> bool {
        self.checks += 1;
        let good = outcome.is_ok();
        if let Err(message) = outcome {
            let place = format!("case '{}', {place}", self.case);
            self.failures.push(Failure { op: self.op, place, message });
        }
        good
    }
}

/// Random inputs of a case; the same for every device. Where results are exact they are chosen
/// among the inputs, maybe by size: then no two inputs are close.
pub(crate) fn draw(subject: &Subject, dtype: DType) -> Vec<Host> {
    let apart = subject.case.tolerance == Tolerance::Exact;
    let mut random = Random::new(&format!("{}/{}/{dtype}", subject.op, subject.case.label));
    subject.case.inputs.iter().map(|input| random.draw(input, dtype, apart)).collect()
}

/// Lengths that elementwise operations also run with: nothing, one, and around a tile's.
pub(crate) const SIZES: [usize; 5] = [0, 1, 1023, 1024, 1025];

/// Random inputs of a case, all of one length.
pub(crate) fn draw_sized(subject: &Subject, dtype: DType, size: usize) -> Vec<Host> {
    let mut random = Random::new(&format!("{}/{size}", subject.op));
    let inputs = subject.case.inputs.iter();
    let sized = |input: &CaseInput| CaseInput { shape: vec![size], ..input.clone() };
    inputs.map(|input| random.draw(&sized(input), dtype, false)).collect()
}

/// The inputs with those that follow the case's dtype as doubles.
pub(crate) fn widen(case: &Case, hosts: &[Host]) -> Vec<Host> {
    (case.inputs.iter().zip(hosts))
        .map(|(input, host)| match input.dtype {
            None => host.cast(DType::F64),
            Some(_) => host.clone(),
        })
        .collect()
}

/// Whether the case can run in doubles: an argument follows its dtype.
pub(crate) fn follows_dtype(case: &Case) -> bool {
    case.inputs.iter().any(|input| input.dtype.is_none())
}

/// Calls the case with inputs in a layout and reads the results. Panics become errors.
pub(crate) fn run(
    case: &Case,
    hosts: &[Host],
    layout: Layout,
    device: &Device,
) -> Result<Vec<Host>, String> {
    guarded(|| {
        let inputs = place(hosts, layout, device)?;
        let outputs = wootz::with_device(device, || (case.call.0)(&inputs))?;
        wootz::eval(&outputs)?;
        outputs.iter().map(Host::read).collect()
    })
}

pub(crate) fn place(hosts: &[Host], layout: Layout, device: &Device) -> wootz::Result<Vec<Array>> {
    hosts.iter().map(|host| layout.place(host, device)).collect()
}

/// Runs `body`; an error or a panic becomes a message.
pub(crate) fn guarded<T>(body: impl FnOnce() -> wootz::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// Whether two results have the same bits; one NaN is as good as another.
pub(crate) fn same_bits(got: &[Host], want: &[Host]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} outputs, expected {}", got.len(), want.len()));
    }
    for (g, w) in got.iter().zip(want) {
        if (&g.shape, g.dtype) != (&w.shape, w.dtype) {
            return Err(format!(
                "{:?} of {}, expected {:?} of {}",
                g.shape, g.dtype, w.shape, w.dtype
            ));
        }
        let size = g.dtype.size();
        let (gv, wv) = (g.to_f64(), w.to_f64());
        for (i, (a, b)) in g.bytes.chunks(size).zip(w.bytes.chunks(size)).enumerate() {
            if a != b && !(gv[i].is_nan() && wv[i].is_nan()) {
                return Err(format!(
                    "element {i} is {:e}, expected the bits of {:e}",
                    gv[i], wv[i]
                ));
            }
        }
    }
    Ok(())
}

/// Cases of which some value is rounded to zero in narrow types that is none in doubles, before it meets a factor
/// that may be infinite: the product is NaN in one and not in the other. Of 515 rows of three elements, the
/// rounded sum of one is as large as its mean.
const ZERO_IF_NARROW: &[(&str, &str)] = &[("add_layer_norm", "[515, 3], 2")];

/// Inputs with NaN and infinities among them, where the case draws floats of its own dtype.
pub(crate) fn with_specials(
    subject: &Subject,
    hosts: &[Host],
    specials: &[f64],
) -> Option<Vec<Host>> {
    let narrow = |host: &Host| matches!(host.dtype, DType::F16 | DType::BF16);
    let case = (subject.op, subject.case.label.as_str());
    if ZERO_IF_NARROW.contains(&case) && hosts.iter().any(narrow) {
        return None;
    }
    let mut random = Random::new(&format!("specials/{}/{}", subject.op, subject.case.label));
    let mut any = false;
    let inputs = (subject.case.inputs.iter().zip(hosts))
        .map(|(input, host)| {
            if input.dtype.is_some() || !host.dtype.is_float() || host.size() == 0 {
                return host.clone();
            }
            any = true;
            let mut values = host.to_f64();
            for &special in specials {
                let place = random.next() as usize % values.len();
                values[place] = special;
            }
            Host::from_f64(&host.shape, host.dtype, &values)
        })
        .collect();
    any.then_some(inputs)
}

/// Inputs with an index that is out of range, and the error that they are: where the case takes
/// indices and the CPU refuses a large one.
pub(crate) fn with_bad_index(case: &Case, hosts: &[Host]) -> Option<(Vec<Host>, String)> {
    let is_index = |(input, host): (&CaseInput, &Host)| {
        let integers = input.dtype.is_some_and(|dtype| !dtype.is_float() && dtype != DType::Bool);
        integers && host.size() > 0
    };
    let place = case.inputs.iter().zip(hosts).position(is_index)?;
    let mut hosts = hosts.to_vec();
    let Host { shape, dtype, .. } = &hosts[place];
    let mut values = hosts[place].to_f64();
    // The last one, so that good ones come before.
    *values.last_mut()? = if dtype.size() == 1 { 127.0 } else { 32_767.0 };
    hosts[place] = Host::from_f64(shape, *dtype, &values);
    let error = run(case, &hosts, Layout::Contiguous, &Device::cpu()).err()?;
    error.contains(" is out of range for an axis ").then_some((hosts, error))
}

/// Whether a case fails with an error, and with no other.
pub(crate) fn fails_with(
    case: &Case,
    hosts: &[Host],
    error: &str,
    device: &Device,
) -> Result<(), String> {
    match run(case, hosts, Layout::Contiguous, device) {
        Err(message) if message == error => Ok(()),
        Err(message) => Err(format!("the error is \"{message}\", expected \"{error}\"")),
        Ok(_) => Err(format!("there is no error, expected \"{error}\"")),
    }
}

/// Operations whose results in doubles, and for NaN and infinities, are something else, for which
/// dtypes, and why.
pub(crate) const UNLIKE_DOUBLES: &[(&str, &[DType], &str)] = &[
    ("view", wootz::op::FLOATS, "the bits of a double are not those of a narrower float"),
    (
        "floor_divide",
        &[DType::F16, DType::BF16],
        "the quotient is rounded, and then its floor taken",
    ),
    ("round", &[DType::F16, DType::BF16], "powers of ten and products with them are rounded"),
    (
        "activations",
        wootz::op::FLOATS,
        "slopes at infinities are products of infinities and zeros, which fast math need not keep",
    ),
];

/// Whether results can be compared with those of doubles, and for special values.
pub(crate) fn like_doubles(subject: &Subject, dtype: DType) -> bool {
    let unlike =
        |(op, dtypes, _): &(&str, &[DType], _)| *op == subject.op && dtypes.contains(&dtype);
    !UNLIKE_DOUBLES.iter().any(unlike)
}

/// Sums of products of the arguments, beside contractions: with absolute values for arguments they
/// are the sums of their terms' magnitudes. What `logaddexp` adds is below that, too.
#[rustfmt::skip]
const SUMS: &[&str] =
    &["sum", "mean", "cumsum", "logaddexp", "take_along_axis_backward", "rms_norm_backward_dw"];

/// What the rounding errors of a sum are relative to, in doubles.
pub(crate) fn magnitudes(subject: &Subject, hosts: &[Host]) -> Option<Vec<Host>> {
    let case = &subject.case;
    let sum = case.tolerance == Tolerance::Contraction || SUMS.contains(&subject.op);
    let float = |(input, host): (&CaseInput, &Host)| input.dtype.is_none() && host.dtype.is_float();
    if !sum || !case.inputs.iter().zip(hosts).any(float) {
        return None;
    }
    let absolute = |host: &Host| match host.dtype {
        DType::F64 => {
            let values: Vec<f64> = host.to_f64().into_iter().map(f64::abs).collect();
            Host::from_f64(&host.shape, DType::F64, &values)
        }
        _ => host.clone(),
    };
    let hosts: Vec<Host> = widen(case, hosts).iter().map(absolute).collect();
    run(case, &hosts, Layout::Contiguous, &Device::cpu()).ok()
}

/// What is sprinkled over the inputs, one run each.
pub(crate) const SPECIALS: [&[f64]; 2] = [&[f64::NAN], &[f64::INFINITY, f64::NEG_INFINITY]];
