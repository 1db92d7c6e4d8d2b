//! Runs one case on a device and judges it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wootz::{Array, Device, Error};

use crate::call::{Call, Outcome, Refusal, upload};
use crate::case::{Case, Class, Expected, Gradient};
use crate::compare;
use crate::table;
use crate::tensor::{Kind, Tensor, Tensors};

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As MLX has it.
    Passed,
    /// Something else, and what.
    Failed(String),
    /// The table lacks the operation or an argument. Counts as failed.
    Unknown(String),
    /// Says nothing about this device.
    NotCounted(String),
}

/// Runs a case and compares what it gives with `expected`.
pub fn judge(case: &Case, expected: &Expected, tensors: &Tensors, device: &Device) -> Verdict {
    if device.is_gpu() && case.mentions(Kind::Real(wootz::DType::F64), tensors) {
        return Verdict::NotCounted("float64 exists on the CPU only".into());
    }
    let work = || wootz::with_device(device, || checked(case, expected, tensors, device));
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(verdict) => verdict,
        Err(payload) => Verdict::Failed(format!("panic: {}", message(&*payload))),
    }
}

fn checked(case: &Case, expected: &Expected, tensors: &Tensors, device: &Device) -> Verdict {
    let Some(row) = table::find(&case.op) else {
        return Verdict::Unknown(format!("operation {}", case.op));
    };
    let run = Run { case, row, tensors, device };
    if case.class == Class::Error {
        return run.must_refuse();
    }
    match run.outputs(expected).and_then(|()| match &case.gradient {
        Some(gradient) => run.gradients(gradient, expected),
        None => Ok(()),
    }) {
        Ok(()) => Verdict::Passed,
        Err(Stop::Refused(Refusal::Unknown(what))) => Verdict::Unknown(what),
        Err(Stop::Refused(refusal)) => Verdict::Failed(refusal.to_string()),
        Err(Stop::Wrong(why)) => Verdict::Failed(why),
    }
}

/// Why a case does not pass.
enum Stop {
    Refused(Refusal),
    Wrong(String),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Refused(error.into())
    }
}

struct Run<'a> {
    case: &'a Case,
    row: table::Row,
    tensors: &'a Tensors,
    device: &'a Device,
}

impl Run<'_> {
    fn outputs(&self, expected: &Expected) -> Result<(), Stop> {
        let call = Call::new(self.case, self.tensors, self.device)?;
        let meter = Meter::start(self.device);
        let arrays = self.call(&call)?;
        wootz::eval(&arrays)?;
        self.on_device(&meter, &arrays)?;
        let got = read(&arrays)?;
        let a = match self.case.class {
            Class::Set | Class::Sign => Some(Tensor::read(&call.array("a")?)?),
            _ => None,
        };
        compare::outputs(self.case, a.as_ref(), &got, &expected.outputs).map_err(Stop::Wrong)
    }

    fn gradients(&self, gradient: &Gradient, expected: &Expected) -> Result<(), Stop> {
        let call = Call::new(self.case, self.tensors, self.device)?;
        // Views are made outside of the differentiated function.
        let primals =
            gradient.wrt.iter().map(|path| call.at_path(path)).collect::<Result<Vec<_>, _>>()?;
        let names = gradient.cotangents.iter().flatten();
        let cotangents = names
            .map(|name| upload(&self.tensors[name], self.device))
            .collect::<Result<Vec<_>, _>>()?;
        let takes_part = |(array, name): (Array, &Option<String>)| name.is_some().then_some(array);
        let mut refused = None;
        let function = |arrays: &[Array]| match self.call(&call.with(&gradient.wrt, arrays)) {
            Ok(outputs) => {
                Ok(outputs.into_iter().zip(&gradient.cotangents).filter_map(takes_part).collect())
            }
            Err(Refusal::Wootz(error)) => Err(error),
            Err(refusal) => {
                let reason = refusal.to_string();
                refused = Some(refusal);
                Err(Error::Transform { transform: "vjp", reason })
            }
        };
        let meter = Meter::start(self.device);
        let result = wootz::vjp(function, &primals, &cotangents);
        if let Some(refusal) = refused {
            return Err(refusal.into());
        }
        let in_gradient = |error: Error| Stop::Wrong(format!("gradient: {error}"));
        let (_, arrays) = result.map_err(in_gradient)?;
        wootz::eval(&arrays).map_err(in_gradient)?;
        self.on_device(&meter, &arrays)?;
        let got = read(&arrays).map_err(in_gradient)?;
        let pairs = got.iter().zip(&expected.gradients).zip(&gradient.tolerances);
        for (((got, expected), &tolerance), path) in pairs.zip(&gradient.wrt) {
            compare::gradient(got, expected, tolerance)
                .map_err(|why| Stop::Wrong(format!("gradient of {path}: {why}")))?;
        }
        Ok(())
    }

    /// An error case passes if the refusal is about the arguments.
    fn must_refuse(&self) -> Verdict {
        let result = Call::new(self.case, self.tensors, self.device).and_then(|call| {
            let arrays = self.call(&call)?;
            read(&arrays)?;
            Ok(())
        });
        match result {
            Ok(()) => Verdict::Failed("not refused".into()),
            Err(Refusal::Unknown(what)) => Verdict::Unknown(what),
            Err(Refusal::Unsayable(_)) => Verdict::Passed,
            Err(Refusal::Wootz(error)) => match about_arguments(&error) {
                true => Verdict::Passed,
                false => Verdict::Failed(format!("refused for another reason: {error}")),
            },
        }
    }

    /// Calls the row; arguments that it did not read are unknown to it.
    fn call(&self, call: &Call<'_>) -> Outcome {
        let arrays = (self.row)(call)?;
        match &call.unread()[..] {
            [] => Ok(arrays),
            names => Err(Refusal::Unknown(format!("argument {}", names.join(", ")))),
        }
    }

    /// On a GPU no operation may run on the host, linear algebra and Fourier transforms apart.
    fn on_device(&self, meter: &Meter<'_>, arrays: &[Array]) -> Result<(), Stop> {
        let op = self.case.op.as_str();
        // Samples are made with the singular values of the covariance.
        let factors = op.starts_with("linalg.") || op == "random.multivariate_normal";
        if factors || op.starts_with("fft.") {
            return Ok(());
        }
        if arrays.iter().any(|array| array.device() != self.device) {
            return Err(Stop::Wrong("a result is on another device".into()));
        }
        meter.check(&self.case.op).map_err(Stop::Wrong)
    }
}

fn read(arrays: &[Array]) -> wootz::Result<Vec<Tensor>> {
    arrays.iter().map(Tensor::read).collect()
}

/// Errors that say that a value given is wrong, not that something is missing here.
fn about_arguments(error: &Error) -> bool {
    matches!(
        error,
        Error::Shape { .. }
            | Error::Dtype { .. }
            | Error::Axis { .. }
            | Error::Index { .. }
            | Error::Argument { .. }
            | Error::SizeOverflow { .. }
            | Error::NoIdentity { .. }
    )
}

/// What the GPU had done before a call.
#[cfg(feature = "gpu")]
struct Meter<'a>(Option<(&'a wootz::gpu::Gpu, wootz::gpu::GpuCounters)>);

#[cfg(feature = "gpu")]
impl<'a> Meter<'a> {
    fn start(device: &'a Device) -> Meter<'a> {
        Meter(device.as_gpu().map(|gpu| (&**gpu, gpu.counters())))
    }

    fn check(&self, op: &str) -> Result<(), String> {
        let Some((gpu, before)) = &self.0 else { return Ok(()) };
        let now = gpu.counters();
        let downloaded = now.downloaded_bytes - before.downloaded_bytes;
        if downloaded > 0 {
            return Err(format!("ran on the host: {downloaded} bytes were read back"));
        }
        // A key is two words that its caller gives; there is nothing to compute.
        let uploaded = now.uploaded_bytes - before.uploaded_bytes;
        if now.dispatches == before.dispatches && uploaded > 0 && op != "random.key" {
            return Err(format!("ran on the host: {uploaded} bytes were uploaded, no kernel ran"));
        }
        Ok(())
    }
}

/// There is none.
#[cfg(not(feature = "gpu"))]
struct Meter<'a>(std::marker::PhantomData<&'a Device>);

#[cfg(not(feature = "gpu"))]
impl<'a> Meter<'a> {
    fn start(_: &'a Device) -> Meter<'a> {
        Meter(std::marker::PhantomData)
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
