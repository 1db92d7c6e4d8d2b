//! Random numbers, always with a key.

use wootz::random::{self, Samples};
use wootz::{Arg, DType, Scalar, broadcast_shapes};

use super::{one, rows};
use crate::call::{Call, Refusal, sayable, unsayable};

rows! {
    "random.bernoulli" => |c| {
        let p = c.arg("p")?;
        let shape = match (&p, c.has("shape")) {
            (Arg::Array(p), false) => p.shape().to_vec(),
            (Arg::Scalar(_), false) => Vec::new(),
            (_, true) => c.shape("shape")?,
        };
        c.ignore("shape");
        one(random::bernoulli(p, &shape, Some(&c.array("key")?)))
    },
    "random.categorical" => |c| {
        let shape = c.has("shape").then(|| c.shape("shape")).transpose()?;
        let number = c.has("num_samples").then(|| c.size("num_samples")).transpose()?;
        c.ignore("shape");
        c.ignore("num_samples");
        let samples = match (&shape, number) {
            (None, None) => Samples::One,
            (None, Some(number)) => Samples::Many(number),
            (Some(shape), None) => Samples::Shape(shape),
            (Some(_), Some(_)) => return unsayable("num_samples", "given beside shape"),
        };
        let key = c.array("key")?;
        one(random::categorical(&c.array("logits")?, c.int("axis")?, samples, Some(&key)))
    },
    "random.gumbel" => |c| {
        one(random::gumbel(&c.shape("shape")?, c.dtype_or("dtype", DType::F32)?, Some(&c.array("key")?)))
    },
    "random.key" => |c| one(random::key(c.word64("seed")?)),
    "random.laplace" => |c| one(random::laplace(
        &c.shape("shape")?,
        c.dtype_or("dtype", DType::F32)?,
        c.float("loc")?,
        c.float("scale")?,
        Some(&c.array("key")?),
    )),
    "random.multivariate_normal" => |c| {
        if c.dtype_or("dtype", DType::F32)? != DType::F32 {
            return unsayable("dtype", "another than float32");
        }
        one(random::multivariate_normal(
            &c.array("mean")?,
            &c.array("cov")?,
            &c.shape("shape")?,
            Some(&c.array("key")?),
        ))
    },
    "random.normal" => |c| one(random::normal(
        &c.shape("shape")?,
        c.dtype_or("dtype", DType::F32)?,
        given(c, "loc", 0.0)?,
        given(c, "scale", 1.0)?,
        Some(&c.array("key")?),
    )),
    "random.permutation" => |c| {
        let (axis, key) = (c.int("axis")?, c.array("key")?);
        one(match c.arg("x")? {
            Arg::Array(x) => random::shuffle(&x, axis, Some(&key)),
            Arg::Scalar(n) => random::permutation(sayable("x", n.as_i64())?, Some(&key)),
        })
    },
    "random.randint" => |c| one(random::randint(
        c.arg("low")?,
        c.arg("high")?,
        &c.shape("shape")?,
        c.dtype_or("dtype", DType::I32)?,
        Some(&c.array("key")?),
    )),
    "random.split" => |c| one(random::split(&c.array("key")?, c.size("num")?)),
    "random.truncated_normal" => |c| {
        let (lower, upper) = (c.arg("lower")?, c.arg("upper")?);
        let shape = match c.has("shape") {
            true => c.shape("shape")?,
            false => broadcast_shapes(&[&lower, &upper].map(shape_of))?,
        };
        c.ignore("shape");
        let (dtype, key) = (c.dtype_or("dtype", DType::F32)?, c.array("key")?);
        one(random::truncated_normal(lower, upper, &shape, dtype, Some(&key)))
    },
    "random.uniform" => |c| one(random::uniform(
        given(c, "low", 0.0)?,
        given(c, "high", 1.0)?,
        &c.shape("shape")?,
        c.dtype_or("dtype", DType::F32)?,
        Some(&c.array("key")?),
    )),
}

fn shape_of(arg: &Arg) -> Vec<usize> {
    match arg {
        Arg::Array(array) => array.shape().to_vec(),
        Arg::Scalar(_) => Vec::new(),
    }
}

fn given(c: &Call<'_>, name: &str, otherwise: f64) -> Result<Arg, Refusal> {
    Ok(c.arg_opt(name)?.unwrap_or(Arg::Scalar(Scalar::Float(otherwise))))
}
