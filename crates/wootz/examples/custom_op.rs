//! An operation of your own: a kernel for the CPU, one in WGSL for GPUs, and rules for transforms,
//! with nothing but the public API. `cargo run --example custom_op`

use wootz::gpu::{Bind, GpuCall, Kernel, grid};
use wootz::op::{Batch, Metas, Op, expect_contiguous, expect_dtype, expect_inputs};
use wootz::{Array, CpuCall, DType, Device, Meta, Result, grad, jvp, sigmoid, vmap};

fn main() -> Result<()> {
    run(&Device::cpu())?;
    match Device::gpu() {
        Ok(gpu) => run(&gpu),
        Err(error) => {
            println!("no GPU: {error}");
            Ok(())
        }
    }
}

/// `x · sigmoid(beta · x)`.
pub fn swish(x: &Array, beta: f64) -> Result<Array> {
    // The kernels below want row-major memory; a row-major array is not copied.
    Array::apply(Swish { beta }, &[&x.contiguous()?])
}

#[derive(Debug)]
struct Swish {
    beta: f64,
}

impl Op for Swish {
    fn name(&self) -> &'static str {
        "swish"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "y"]
    }

    /// Checks the inputs and tells the outputs' shapes and dtypes, when the node is built.
    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_dtype(self, inputs, 0, DType::F32)?;
        expect_contiguous(self, inputs, 0)?;
        Ok([Meta::new(self.name(), inputs[0].shape(), DType::F32)?].into_iter().collect())
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let (x, beta) = (call.input::<f32>(0)?, self.beta as f32);
        for (y, x) in call.output::<f32>(0)?.iter_mut().zip(x) {
            *y = x / (1.0 + (-beta * x).exp());
        }
        Ok(())
    }

    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let (count, offset) = (call.output_meta(0).size(), call.meta(0).layout.offset);
        call.launch(&Kernel {
            variant: "plain".into(),
            source: &|| WGSL.into(),
            bindings: &[Bind::Input(0), Bind::Output(0)],
            params: &[count as u32, offset as u32, (self.beta as f32).to_bits()],
            groups: grid(count.div_ceil(64)),
        })
    }

    /// Made of operations that have gradients themselves, so that there are higher ones too. It
    /// also gives forward mode.
    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dy) = &cotangents[0] else { return Ok(vec![None]) };
        let (x, y) = (&inputs[0], &outputs[0]);
        let s = sigmoid(x * self.beta)?;
        Ok(vec![Some(dy * (&s + y * self.beta * (1.0 - &s)))])
    }

    /// An element by itself: the kernel takes a whole batch as it is.
    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

const WGSL: &str = "
struct Params { n: u32, offset: u32, beta: f32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3u,
    @builtin(num_workgroups) groups: vec3u,
    @builtin(local_invocation_index) local: u32,
) {
    let i = (group.x + group.y * groups.x) * 64u + local;
    if (i < p.n) {
        let v = x[p.offset + i];
        y[i] = v / (1.0 + exp(-p.beta * v));
    }
}
";

/// Uses the operation on a device and compares it with the same function made of others.
pub fn run(device: &Device) -> Result<()> {
    let values: Vec<f32> = (0..1000).map(|i| i as f32 / 100.0 - 5.0).collect();
    let x = Array::from_slice_on(&values, &[250, 4], device)?;
    let plain = |x: &Array| -> Result<Array> { Ok(x * sigmoid(x * 1.5)?) };
    let far = |a: &Array, b: &Array| (a - b).abs()?.max(())?.item::<f32>();

    let value = far(&swish(&x, 1.5)?, &plain(&x)?)?;
    let slope = |f: &dyn Fn(&Array) -> Result<Array>, x: &Array| {
        Ok::<_, wootz::Error>(grad(|x: &[Array]| f(&x[0])?.sum(()))(&[x.clone()])?.remove(0))
    };
    let first = |x: &Array| slope(&|x| swish(x, 1.5), x);
    let gradient = far(&first(&x)?, &slope(&plain, &x)?)?;
    let second = far(&slope(&first, &x)?, &slope(&|x| slope(&plain, x), &x)?)?;
    let forward = jvp(|x| Ok(vec![swish(&x[0], 1.5)?]), &[x.clone()], &[wootz::ones_like(&x)?])?.1;
    let forward = far(&forward[0], &slope(&plain, &x)?)?;
    let columns = vmap(|x| Ok(vec![swish(&x[0], 1.5)?]), 1, 1)(&[x.clone()])?;
    let batch = far(&columns[0], &plain(&x)?)?;

    let errors = [value, gradient, second, forward, batch];
    println!("{device}: largest differences of value, gradient, second, jvp, vmap: {errors:?}");
    assert!(errors.iter().all(|&error| error < 1e-5));
    Ok(())
}
