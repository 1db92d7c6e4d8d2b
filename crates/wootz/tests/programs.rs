//! Random programs: graphs of up to 40 operations, drawn from all there are with arguments that
//! earlier ones computed, over shapes, views and dtypes at random.
//!
//! On the CPU each operation is compared with doubles, of integers with its reference where there is one
//! and else with doubles that hold them, and on the GPU with the CPU; on both the whole program, evaluated at once, and compiled, with its steps one by one. On the CPU its gradient is
//! compared with finite differences, and a batch of it with a loop.
//!
//! `WOOTZ_PROGRAMS=20000` runs more than usual, a tenth of them on the GPU, and `WOOTZ_SEED=1` runs
//! others. A failure is made small, and printed with the seed that leads to it.
#![allow(missing_docs)]
#![allow(dead_code)]

mod harness;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

use harness::cpu::compare_all;
use harness::data::{Host, Random};
use harness::layouts::Layout;
use harness::tolerance::{Against, rounding};
use harness::{Subject, follows_dtype, guarded, like_doubles, run, same_bits, widen};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use wootz::op::{CaseInput, Gradient, Tolerance};
use wootz::{Array, DType, Device, Result};

const MOST_STEPS: usize = 40;
/// Cases with more elements than this are left to the other tests.
const MOST_ELEMENTS: usize = 1500;

/// Operations that jump where a quotient is whole, so that its last bit decides.
const JUMPING: [&str; 3] = ["divmod", "floor_divide", "remainder"];
/// Operations whose results sum terms which all have one rounding in them: that of attention's output
/// is in what every query adds to a key's gradient. Where everything else cancels, as it may here and
/// not among the harness's cases, only that is left; so they are not compared with doubles.
const LONG_SUMS: [&str; 2] = ["attention_backward", "attention_backward_mask"];

/// Operations that look at the bits of a number, or of which integers are words for something else.
const BITS: [&str; 2] = ["view", "astype"];

/// How the text of a panic begins.
const PANICKED: &str = "panicked: ";

/// Operations with scores that are sums over a head's dims, up to 83 of them here, and go through an exponential:
/// what such a sum is off by, the result is off by, relative to itself.
const SCORES: [&str; 2] = ["scaled_dot_product_attention", "quantized_attention"];

/// Whether an operation takes matrices apart. Of matrices as they come, some are as good as singular, and some
/// have values that are nearly equal and change places: only the harness's are far from that.
fn factors(op: &str) -> bool {
    let plain = ["linalg.cross", "linalg.norm"].contains(&op);
    (op.starts_with("linalg.") && !plain) || op == "random.multivariate_normal"
}

/// What a step is drawn from: numbers that choose among what is possible.
type Raw = [u32; 8];

/// What was done so far.
#[derive(Default)]
struct Tally<'a> {
    /// How often each operation was drawn.
    drawn: BTreeMap<&'a str, usize>,
    /// Of each dtype how many steps ran, and of how many something told the results.
    by_dtype: BTreeMap<String, [usize; 2]>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, step: &Step<'a>, checked: bool) {
        *self.drawn.entry(step.subject.op).or_default() += 1;
        let of_dtype = self.by_dtype.entry(step.dtype.to_string()).or_default();
        of_dtype[0] += 1;
        of_dtype[1] += usize::from(checked);
    }

    /// Steps, and how many of them were checked.
    fn steps(&self) -> [usize; 2] {
        let add = |[a, b]: [usize; 2], [c, d]: &[usize; 2]| [a + c, b + d];
        self.by_dtype.values().fold([0, 0], add)
    }
}

/// Where an argument comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Leaf(usize),
    /// An earlier result, brought to the shape, dtype and range that the operation takes.
    Result(usize),
}

struct Step<'a> {
    subject: &'a Subject,
    dtype: DType,
    shapes: Vec<Vec<usize>>,
    sources: Vec<Source>,
    views: u32,
    /// How many results it has.
    outputs: usize,
}

#[derive(Default)]
struct Program<'a> {
    steps: Vec<Step<'a>>,
    /// The leaves, with the arguments that they are drawn for.
    leaves: Vec<(CaseInput, DType, bool)>,
}

/// The operations to draw from, each with its cases.
struct Choices<'a>(Vec<(&'a str, Vec<&'a Subject>)>);

impl<'a> Choices<'a> {
    fn new(subjects: &'a [Subject]) -> Choices<'a> {
        let mut by_name: BTreeMap<&str, Vec<&Subject>> = BTreeMap::new();
        for subject in subjects.iter().filter(|s| !s.case.label.starts_with("reference")) {
            let sizes = subject.case.inputs.iter().map(|i| i.shape.iter().product::<usize>());
            if sizes.sum::<usize>() <= MOST_ELEMENTS {
                by_name.entry(subject.op).or_default().push(subject);
            }
        }
        Choices(by_name.into_iter().collect())
    }
}

impl<'a> Program<'a> {
    /// The program that the numbers choose, its leaves, and what its steps give on the device one by
    /// one, each of them checked.
    fn new(
        choices: &Choices<'a>,
        raw: &[Raw],
        device: &Device,
        tally: &mut Tally<'a>,
    ) -> Result<(Program<'a>, Vec<Array>, Vec<Array>), String> {
        let mut program = Program::default();
        let (mut leaves, mut pool) = (Vec::new(), Vec::new());
        for numbers in raw {
            let (_, cases) = &choices.0[numbers[0] as usize % choices.0.len()];
            let subject = cases[numbers[1] as usize % cases.len()];
            // Other lengths than the case's, if it takes them: longer, so that indices stay valid.
            let grown = |&length: &usize| match length {
                0 | 1 => length,
                _ => length + (numbers[2].rotate_left(length as u32) % 4) as usize,
            };
            let own = |input: &CaseInput| input.shape.clone();
            let longer = |input: &CaseInput| input.shape.iter().map(grown).collect();
            let inputs = &subject.case.inputs;
            let mut outcome = Err(String::new());
            for shapes in [inputs.iter().map(longer).collect(), inputs.iter().map(own).collect()] {
                let count = (leaves.len(), program.leaves.len());
                let step = program.choose(subject, numbers, shapes, &pool);
                for (input, dtype, apart) in &program.leaves[count.1..] {
                    let mut random = Random::new(&format!("{numbers:?}/{}", leaves.len()));
                    let host = random.draw(input, *dtype, *apart);
                    leaves.push(host.array(device).map_err(|e| e.to_string())?);
                }
                outcome = evaluated(&step, &leaves, &pool, device).map(|found| (step, found));
                // What a longer axis does not fit is refused; a kernel that panics is a mistake.
                if !matches!(&outcome, Err(text) if !text.contains(PANICKED)) {
                    break;
                }
                leaves.truncate(count.0);
                program.leaves.truncate(count.1);
            }
            let (mut step, found) = outcome?;
            step.outputs = found.outputs.len();
            tally.add(&step, check(&step, &found)?);
            program.steps.push(step);
            pool.extend(found.outputs);
        }
        Ok((program, leaves, pool))
    }

    /// Chooses the arguments of a step.
    fn choose(
        &mut self,
        subject: &'a Subject,
        numbers: &Raw,
        shapes: Vec<Vec<usize>>,
        pool: &[Array],
    ) -> Step<'a> {
        let case = &subject.case;
        let dtype = case.dtypes[numbers[3] as usize % case.dtypes.len()];
        let mut sources = Vec::new();
        for (index, (input, shape)) in case.inputs.iter().zip(&shapes).enumerate() {
            let number = numbers[4].rotate_left(7 * index as u32) as usize;
            let wanted: usize = shape.iter().product();
            let result = number.checked_rem(pool.len()).filter(|&at| {
                input.dtype.is_none()
                    && !number.is_multiple_of(5)
                    && (wanted == 0 || pool[at].size() > 0)
            });
            sources.push(match result {
                Some(at) => Source::Result(at),
                None => {
                    let input = CaseInput { shape: shape.clone(), ..input.clone() };
                    self.leaves.push((input, dtype, case.tolerance == Tolerance::Exact));
                    Source::Leaf(self.leaves.len() - 1)
                }
            });
        }
        Step { subject, dtype, shapes, sources, views: numbers[5], outputs: 0 }
    }

    /// All results, from leaves of the program's dtypes, or with `doubles` for all floats.
    fn run(&self, leaves: &[Array], doubles: bool) -> Result<Vec<Array>> {
        let mut pool = Vec::new();
        for step in &self.steps {
            let inputs = step.inputs(leaves, &pool, doubles)?;
            pool.extend((step.subject.case.call.0)(&inputs)?);
        }
        Ok(pool)
    }

    /// As [`run`](Self::run) in doubles, but for steps whose gradient is not what differences say:
    /// their results are zeros.
    fn run_smooth(&self, leaves: &[Array]) -> Result<Vec<Array>> {
        let mut pool = Vec::new();
        for step in &self.steps {
            let outputs = (step.subject.case.call.0)(&step.inputs(leaves, &pool, true)?)?;
            for output in outputs {
                pool.push(if step.is_smooth() { output } else { wootz::zeros_like(&output)? });
            }
        }
        Ok(pool)
    }

    /// The steps in words.
    fn describe(&self) -> String {
        let step = |step: &Step<'_>| {
            let Step { subject, dtype, shapes, sources, .. } = step;
            format!(
                "{}, case '{}' in {dtype} of {shapes:?}: {sources:?}",
                subject.op, subject.case.label
            )
        };
        self.steps.iter().map(step).collect::<Vec<_>>().join("\n")
    }

    /// Leaves drawn at random, with doubles for floats.
    fn doubles(&self, seed: &str) -> Vec<Host> {
        let draw = |(index, (input, dtype, apart)): (usize, &(CaseInput, DType, bool))| {
            let dtype = if dtype.is_float() { DType::F64 } else { *dtype };
            Random::new(&format!("{seed}/{index}")).draw(input, dtype, *apart)
        };
        self.leaves.iter().enumerate().map(draw).collect()
    }
}

impl Step<'_> {
    /// Whether finite differences tell the gradient.
    fn is_smooth(&self) -> bool {
        let Subject { op, case, .. } = self.subject;
        // Gradients are held back, or pass through what is rounded.
        let held_back = ["astype", "divmod", "stop_gradient"].contains(op);
        // Of equal elements each has the whole gradient.
        let extremum = ["at", "scatter"].contains(op)
            && (case.label.contains("maximum") || case.label.contains("minimum"));
        // Of elements that are equal but for rounding it is a kink that differences step over.
        let kink = *op == "std";
        // Complex numbers have single precision.
        let known = ![Gradient::None, Gradient::Single].contains(&case.gradient);
        !held_back && !extremum && !kink && !factors(op) && known
    }

    fn inputs(&self, leaves: &[Array], pool: &[Array], doubles: bool) -> Result<Vec<Array>> {
        let dtype = if doubles && self.dtype.is_float() { DType::F64 } else { self.dtype };
        let wide = if doubles { DType::F64 } else { DType::F32 };
        let case = &self.subject.case;
        (self.sources.iter().zip(&case.inputs).zip(&self.shapes).enumerate())
            .map(|(index, ((source, input), shape))| {
                let x = match *source {
                    Source::Leaf(at) => leaves[at].clone(),
                    Source::Result(at) => fit(&pool[at], input, shape, dtype, wide)?,
                };
                seen_otherwise(&x, self.views.rotate_left(3 * index as u32))
            })
            .collect()
    }
}

/// A step that ran.
struct Evaluated {
    arguments: Vec<Host>,
    outputs: Vec<Array>,
    /// What the CPU gives, if that is not where it ran.
    on_cpu: Option<Vec<Host>>,
}

/// The arguments and results of a step.
fn evaluated(
    step: &Step<'_>,
    leaves: &[Array],
    pool: &[Array],
    device: &Device,
) -> Result<Evaluated, String> {
    let Step { subject, dtype, .. } = step;
    let run = || {
        let inputs = step.inputs(leaves, pool, false)?;
        let arguments = inputs.iter().map(Host::read).collect::<Result<Vec<_>>>()?;
        let outputs = (subject.case.call.0)(&inputs)?;
        wootz::eval(&outputs)?;
        Ok(Evaluated { arguments, outputs, on_cpu: None })
    };
    guarded(|| wootz::with_device(device, run))
        .and_then(|mut found| {
            // What a GPU does not look at, as the ends of sequences, may still not fit.
            if device.is_gpu() {
                let cpu = Device::cpu();
                let arguments = &found.arguments;
                let on_cpu = harness::run(&subject.case, arguments, Layout::Contiguous, &cpu)?;
                found.on_cpu = Some(on_cpu);
            }
            Ok(found)
        })
        .map_err(|text| format!("{}, case '{}' in {dtype}: {text}", subject.op, subject.case.label))
}

/// Checks the results of a step; tells whether there was something to check them with.
fn check(step: &Step<'_>, found: &Evaluated) -> Result<bool, String> {
    let (subject, case, dtype) = (step.subject, &step.subject.case, step.dtype);
    let Evaluated { arguments, outputs, on_cpu } = found;
    let got: Vec<Host> = guarded(|| outputs.iter().map(Host::read).collect())?;
    let (what, want, against) = match on_cpu {
        Some(want) => ("the GPU against the CPU", want.clone(), Against::Device),
        None => match oracle(step, arguments, &got)? {
            Some((what, want)) => (what, want, Against::Double),
            None => return Ok(false),
        },
    };
    let (got, want) = match dtype.is_float() && JUMPING.contains(&subject.op) {
        true => away_from_jumps(arguments, dtype, got, want)?,
        false => (got, want),
    };
    let against = slack(step, arguments, against);
    compare_all(&got, &want, None, case.tolerance, against, dtype).map(|()| true).map_err(|text| {
        let shapes: Vec<_> = arguments.iter().map(|host| &host.shape).collect();
        format!("{}, case '{}' in {dtype} of {shapes:?}: {what}: {text}", subject.op, case.label)
    })
}

/// What a step should give on the CPU, and how that is known: floats as the operation itself gives in
/// doubles, everything else as the reference does, or doubles that hold the integers. None if nothing tells.
fn oracle(
    step: &Step<'_>,
    arguments: &[Host],
    got: &[Host],
) -> Result<Option<(&'static str, Vec<Host>)>, String> {
    let (subject, case, dtype) = (step.subject, &step.subject.case, step.dtype);
    if !dtype.is_float() {
        return Ok(match &subject.reference {
            Some(f) => Some(("against the reference", f.call(arguments, got))),
            None => integers_in_doubles(step, arguments, got)
                .map(|want| ("against doubles that hold integers", want)),
        });
    }
    // Scores that are all but equal may be chosen otherwise in doubles.
    let rounded = LONG_SUMS.contains(&subject.op) || factors(subject.op) || subject.op == "router";
    // Away from jumps the rounding of a quotient does not matter.
    let like_doubles = like_doubles(subject, dtype) || JUMPING.contains(&subject.op);
    if !follows_dtype(case) || !like_doubles || rounded {
        return Ok(None);
    }
    let wide = run(case, &widen(case, arguments), Layout::Contiguous, &Device::cpu());
    let wide = wide.map_err(|text| format!("{} in doubles: {text}", subject.op))?;
    Ok(Some(("against doubles", wide)))
}

/// What an operation gives of integers as doubles, if it takes those and all that it gives are integers that
/// the results' dtypes hold.
fn integers_in_doubles(step: &Step<'_>, arguments: &[Host], got: &[Host]) -> Option<Vec<Host>> {
    let case = &step.subject.case;
    let exact = case.tolerance == Tolerance::Exact && !step.dtype.is_complex();
    if !exact || !follows_dtype(case) || BITS.contains(&step.subject.op) {
        return None;
    }
    // Beyond that a double skips integers.
    let whole = |x: &f64| x.fract() == 0.0 && x.abs() < (1u64 << 53) as f64;
    let wide = widen(case, arguments);
    let mut results = run(case, &wide, Layout::Contiguous, &Device::cpu()).ok()?;
    results.extend(wide);
    if !results.iter().all(|host| host.to_f64().iter().all(whole)) {
        return None;
    }
    let narrow = |(got, wide): (&Host, &Host)| {
        let host = wide.cast(got.dtype);
        (!got.dtype.is_float() && host.to_f64() == wide.to_f64()).then_some(host)
    };
    got.iter().zip(&results).map(narrow).collect()
}

/// Results of an operation that jumps where a quotient is whole, with zeros near there.
fn away_from_jumps(
    arguments: &[Host],
    dtype: DType,
    got: Vec<Host>,
    want: Vec<Host>,
) -> Result<(Vec<Host>, Vec<Host>), String> {
    let quotients = guarded(|| {
        let wide = |host: &Host| host.cast(DType::F64).array(&Device::cpu());
        Host::read(&wootz::divide(&wide(&arguments[0])?, &wide(&arguments[1])?)?)
    })?;
    let far = |q: f64| (q - q.round()).abs() > 8.0 * rounding(dtype) * (1.0 + q.abs());
    let far: Vec<bool> = quotients.to_f64().into_iter().map(far).collect();
    let only_far = |hosts: Vec<Host>| {
        let keep = |(&far, value): (&bool, f64)| if far { value } else { 0.0 };
        let kept = |host: Host| {
            let values: Vec<f64> = far.iter().zip(host.to_f64()).map(keep).collect();
            Host::from_f64(&host.shape, host.dtype, &values)
        };
        hosts.into_iter().map(kept).collect()
    };
    Ok((only_far(got), only_far(want)))
}

/// What cases draw was chosen so that little cancels; results of other operations were not.
fn slack(step: &Step<'_>, hosts: &[Host], against: Against) -> Against {
    let subject = step.subject;
    match subject.case.tolerance {
        Tolerance::Exact => against,
        _ if LONG_SUMS.contains(&subject.op) => {
            // Those of all heads, queries and dims, which are products of a value and the output's gradient.
            let terms: usize = step.shapes[0].iter().skip(1).product();
            let largest = |i: usize| {
                let values = hosts.get(i).map(Host::to_f64).unwrap_or_default();
                values.into_iter().map(f64::abs).filter(|x| x.is_finite()).fold(1.0, f64::max)
            };
            let product = largest(2) * largest(3);
            Against::Gradient { terms: (terms.max(128) as f64 * product * product) as usize }
        }
        _ if SCORES.contains(&subject.op) => Against::Gradient { terms: 83 },
        _ => Against::Gradient { terms: 16 },
    }
}

/// An array made of the elements of another, as an argument takes it.
fn fit(x: &Array, input: &CaseInput, shape: &[usize], dtype: DType, wide: DType) -> Result<Array> {
    let size: usize = shape.iter().product();
    let flat = x.reshape(&[x.size()])?;
    let flat = if size <= x.size() {
        wootz::slice(&flat, &[0], &[size], &[1])?
    } else {
        let numbers: Vec<u32> = (0..size as u32).map(|i| i % x.size() as u32).collect();
        wootz::take(&flat, &Array::from_slice_on(&numbers, &[size], x.device())?, Some(0))?
    };
    let x = flat.reshape(shape)?;
    if dtype == DType::Bool {
        return wootz::greater(&x, 0);
    }
    let unit = if x.dtype().is_float() {
        let x = wootz::sigmoid(&x.astype(wide)?)?;
        wootz::where_(&wootz::isnan(&x)?, 0.5, &x)?
    } else {
        (wootz::remainder(&x.astype(wide)?, 97.0)? + 0.5) * (1.0 / 98.0)
    };
    let low = if dtype.is_float() || dtype.is_signed_integer() {
        input.range.start
    } else {
        input.range.start.max(0.0)
    };
    let width = input.range.end - low;
    let x = unit * (0.998 * width) + (low + 0.001 * width);
    if dtype.is_float() { x.astype(dtype) } else { wootz::floor(&x)?.astype(dtype) }
}

/// The same elements in memory of another layout.
fn seen_otherwise(x: &Array, number: u32) -> Result<Array> {
    match number % 5 {
        0 => x.transpose()?.contiguous()?.transpose(),
        1 => wootz::flip(&wootz::flip(x, ())?.contiguous()?, ()),
        2 if x.rank() > 0 && x.size() > 0 => {
            let twice = wootz::concatenate(&[x, x], 0)?;
            let mut start = vec![0; x.rank()];
            start[0] = x.shape()[0];
            wootz::slice(&twice, &start, twice.shape(), &vec![1; x.rank()])
        }
        _ => Ok(x.clone()),
    }
}

/// Everything evaluated at once, and compiled, against the steps; tells whether all bits agree.
fn whole(
    program: &Program<'_>,
    leaves: &[Array],
    stepwise: &[Array],
    device: &Device,
) -> Result<bool, String> {
    let read = |arrays: &[Array]| arrays.iter().map(Host::read).collect::<Result<Vec<_>>>();
    let (got, want) = guarded(|| {
        let pool = wootz::with_device(device, || program.run(leaves, false))?;
        wootz::eval(&pool)?;
        Ok((read(&pool)?, read(stepwise)?))
    })?;
    let alike = |got: &[Host], how: &str| {
        alike(program, got, &want, device).map_err(|text| format!("{how}: {text}"))
    };
    let mut same = alike(&got, "evaluated at once")?;
    // The second replay runs in memory that the first one has written to.
    let compiled = wootz::compile(|x: &[Array]| program.run(x, false));
    for replay in ["compiled", "replayed"] {
        let got = guarded(|| read(&wootz::with_device(device, || compiled.call(leaves))?))?;
        same &= alike(&got, replay)?;
    }
    Ok(same)
}

/// Whether results have the bits of the steps'. A GPU's driver may join a product and a sum of a fused
/// kernel: then the first results that differ must be close, and what is made of them is something else.
fn alike(
    program: &Program<'_>,
    got: &[Host],
    want: &[Host],
    device: &Device,
) -> Result<bool, String> {
    let Err(text) = same_bits(got, want) else { return Ok(true) };
    let mut known = 0;
    for step in program.steps.iter().filter(|_| device.is_gpu() && got.len() == want.len()) {
        let range = known..known + step.outputs;
        known = range.end;
        let (got, want, subject) = (&got[range.clone()], &want[range], step.subject);
        if same_bits(got, want).is_err() {
            let (class, against) = (subject.case.tolerance, slack(step, &[], Against::Device));
            return compare_all(got, want, None, class, against, step.dtype)
                .map(|()| false)
                .map_err(|text| format!("{}, case '{}': {text}", subject.op, subject.case.label));
        }
    }
    Err(text)
}

/// Forward mode against the gradient, and both against differences where they exist.
fn gradient(program: &Program<'_>) -> Result<bool, String> {
    let hosts = program.doubles("gradient");
    let float: Vec<usize> = (0..hosts.len()).filter(|&i| hosts[i].dtype.is_float()).collect();
    let mut random = Random::new("direction");
    let direction: Vec<Vec<f64>> = float.iter().map(|&i| random.signed(hosts[i].size())).collect();
    let function = |values: &[Array]| -> Result<Vec<Array>> {
        let mut all = hosts.iter().map(|h| h.array(&Device::cpu())).collect::<Result<Vec<_>>>()?;
        for (&i, value) in float.iter().zip(values) {
            all[i] = value.clone();
        }
        // Results are weighed and summed; what is infinite or no number takes no part.
        let mut sum = Array::scalar(0.0, DType::F64)?;
        for (weight, x) in (1..).zip(program.run_smooth(&all)?) {
            if x.dtype().is_float() {
                let x = wootz::where_(&wootz::isfinite(&x)?, &x, 0.0)?.astype(DType::F64)?;
                let weight = 1.0 + (weight as f64).sin();
                sum = sum + wootz::tanh(&x)?.sum(())? * weight;
            }
        }
        Ok(vec![sum])
    };
    let moved = |step: f64| {
        (float.iter().zip(&direction))
            .map(|(&i, along)| {
                let values: Vec<f64> =
                    hosts[i].to_f64().iter().zip(along).map(|(x, d)| x + step * d).collect();
                Host::from_f64(&hosts[i].shape, DType::F64, &values).array(&Device::cpu())
            })
            .collect::<Result<Vec<_>>>()
    };
    guarded(|| {
        let at = moved(0.0)?;
        let along = (float.iter().zip(&direction))
            .map(|(&i, d)| Host::from_f64(&hosts[i].shape, DType::F64, d).array(&Device::cpu()))
            .collect::<Result<Vec<_>>>()?;
        let one = Array::scalar(1.0, DType::F64)?;
        let gradients = wootz::vjp(function, &at, &[one])?.1;
        let forward = wootz::jvp(function, &at, &along)?.1[0].item::<f64>()?;
        let (mut slope, mut scale) = (0.0, 1.0);
        for (gradient, along) in gradients.iter().zip(&direction) {
            for (g, d) in gradient.to_vec::<f64>()?.iter().zip(along) {
                slope += g * d;
                scale += (g * d).abs();
            }
        }
        let value = |step: f64| function(&moved(step)?)?[0].item::<f64>();
        let difference = |h: f64| Ok::<_, wootz::Error>((value(h)? - value(-h)?) / (2.0 * h));
        Ok((slope, forward, scale, difference(1e-5)?, difference(1e-6)?))
    })
    .and_then(|(slope, forward, scale, coarse, fine)| {
        if !slope.is_finite() || !forward.is_finite() {
            return Ok(false);
        }
        if (slope - forward).abs() > 1e-8 * scale {
            return Err(format!("forward mode says {forward:e}, the gradient {slope:e}"));
        }
        // Where two differences disagree there is a kink or a jump.
        if (coarse - fine).abs() > 1e-5 * scale {
            return Ok(false);
        }
        if (slope - fine).abs() > 1e-3 * scale {
            return Err(format!("the gradient says {slope:e}, differences {coarse:e}, {fine:e}"));
        }
        Ok(true)
    })
}

/// A batch of two against one after the other, in doubles: the whole program, and each step from the
/// same arguments, because a whole one may round a number up in a batch and down alone.
fn batch(program: &Program<'_>) -> Result<(), String> {
    let drawn = [program.doubles("first"), program.doubles("second")];
    if drawn[0].is_empty() {
        return Ok(());
    }
    let arrays = |hosts: &[Host]| {
        hosts.iter().map(|host| host.array(&Device::cpu())).collect::<Result<Vec<_>>>()
    };
    let stacked = |first: &[Array], second: &[Array]| {
        first.iter().zip(second).map(|(a, b)| wootz::stack(&[a, b], 0)).collect::<Result<Vec<_>>>()
    };
    let (leaves, want) = guarded(|| {
        let (first, second) = (arrays(&drawn[0])?, arrays(&drawn[1])?);
        let leaves = stacked(&first, &second)?;
        let want = stacked(&program.run(&first, true)?, &program.run(&second, true)?)?;
        wootz::eval(leaves.iter().chain(&want))?;
        let whole = wootz::vmap(|x| program.run(x, true), 0, 0)(&leaves)?;
        wootz::eval(&whole)?;
        let shapes = |arrays: &[Array]| -> Vec<_> {
            arrays.iter().map(|x| (x.shape().to_vec(), x.dtype())).collect()
        };
        assert_eq!(shapes(&whole), shapes(&want));
        Ok((leaves, want))
    })
    .map_err(|text| format!("for a batch: {text}"))?;
    let mut known = 0;
    for step in &program.steps {
        let all = [&leaves[..], &want[..known]].concat();
        let one = |x: &[Array]| {
            let (leaves, pool) = x.split_at(leaves.len());
            (step.subject.case.call.0)(&step.inputs(leaves, pool, true)?)
        };
        let read = |arrays: &[Array]| arrays.iter().map(Host::read).collect::<Result<Vec<_>>>();
        let (got, want) = guarded(|| {
            let got = read(&wootz::vmap(one, 0, 0)(&all)?)?;
            let want = read(&want[known..known + got.len()])?;
            Ok((got, want))
        })?;
        known += got.len();
        let close = |(a, b): (f64, f64)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-6 * (1.0 + b.abs())
        };
        for (got, want) in got.iter().zip(&want) {
            if let Some(pair) = got.to_f64().into_iter().zip(want.to_f64()).find(|p| !close(*p)) {
                let Subject { op, case, .. } = step.subject;
                return Err(format!(
                    "{op}, case '{}' of {:?} for a batch: {} instead of {}",
                    case.label, step.shapes, pair.0, pair.1
                ));
            }
        }
    }
    Ok(())
}

/// Runs random programs; tells how often each operation was drawn.
fn run_programs(count: u32, device: &Device) {
    let start = Instant::now();
    let subjects = harness::subjects(wootz::ops::registered());
    let choices = Choices::new(&subjects);
    let seed = std::env::var("WOOTZ_SEED").unwrap_or_default();
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(seed.bytes()).for_each(|(byte, letter)| *byte = letter);
    let config = Config {
        cases: count,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tally = RefCell::new(Tally::default());
    let (at_once, same, differences) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let outcome = runner.run(&vec(any::<Raw>(), 1..=MOST_STEPS), |raw| {
        let check = || -> Result<(), String> {
            let (program, leaves, stepwise) =
                Program::new(&choices, &raw, device, &mut tally.borrow_mut())?;
            let checks = || {
                at_once.set(at_once.get() + 1);
                let bits = whole(&program, &leaves, &stepwise, device)?;
                same.set(same.get() + bits as u32);
                // In doubles, which a GPU has not.
                if device.is_gpu() {
                    return Ok(());
                }
                differences.set(differences.get() + gradient(&program)? as u32);
                batch(&program)
            };
            checks().map_err(|text: String| format!("{text}\n{}", program.describe()))
        };
        check().map_err(TestCaseError::fail)
    });
    let tally = tally.into_inner();
    let [steps, checked] = tally.steps();
    let (at_once, same, differences) = (at_once.get(), same.get(), differences.get());
    let mut told = format!(
        "{count} random programs on {device} in {:.0} seconds\n\
         how often each operation was drawn: {:?}\n\
         steps of each dtype, and how many were checked: {:?}\n\
         {checked} of {steps} steps were checked\n\
         {same} of {at_once} programs have the same bits at once\n",
        start.elapsed().as_secs_f64(),
        tally.drawn,
        tally.by_dtype,
    );
    if !device.is_gpu() {
        told += &format!("{differences} of {count} gradients agree with differences\n");
    }
    // Not `println!`, which nobody sees of a test that succeeds.
    std::io::stdout().write_all(told.as_bytes()).unwrap();
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, raw)) => {
            panic!("WOOTZ_SEED={seed:?}: {reason}\nof the program {raw:?}")
        }
        Err(error) => panic!("WOOTZ_SEED={seed:?}: {error}"),
    }
    assert!(2 * same >= at_once, "{same} of {at_once} programs have the same bits at once");
    // Others have a kink or a jump near, or a result that is not finite.
    let enough = device.is_gpu() || 4 * differences >= 3 * count;
    assert!(enough, "{differences} of {count} gradients compared with differences");
    let all = wootz::ops::registered().len();
    let drawn = tally.drawn.len();
    assert!(10 * drawn >= 9 * all, "{drawn} of {all} operations drawn");
    assert!(4 * checked >= 3 * steps, "{checked} of {steps} steps checked");
}

/// How many programs run on the CPU.
fn programs() -> u32 {
    match std::env::var("WOOTZ_PROGRAMS") {
        Ok(count) => {
            count.parse().unwrap_or_else(|error| panic!("WOOTZ_PROGRAMS={count}: {error}"))
        }
        Err(_) => 2000,
    }
}

#[test]
fn random_programs_are_right_on_the_cpu() {
    run_programs(programs(), &Device::cpu());
}

#[cfg(feature = "gpu")]
#[test]
fn random_programs_are_right_on_the_gpu() {
    if let Some(devices) = harness::gpu::devices() {
        run_programs(programs().div_ceil(10), &devices.plain);
    }
}
