//! Proof that kernels read and write 16-bit floats as they are: an evaluation may allocate its
//! results and what its operations state as scratch, but no copy of an array in a wider type.

use std::collections::BTreeMap;

use wootz::op::Op;
use wootz::{Array, DType, Device};

use super::data::Host;
use super::layouts::Layout;
use super::{Log, Subject, draw, draw_sized, guarded, place};

/// Length of the arrays of elementwise operations, which have cases of any length.
const LENGTH: usize = 16_384;
/// Of smaller arrays a copy would not show beside the sizes that memory comes in.
const LEAST: usize = 2048;

/// Checks the 16-bit dtypes of a case on a GPU that nobody else uses at the time.
pub(crate) fn check(subject: &Subject, device: &Device) -> Log {
    let mut log = Log::new(subject);
    let narrow = |dtype: &&DType| matches!(dtype, DType::F16 | DType::BF16);
    for &dtype in subject.case.dtypes.iter().filter(narrow) {
        let hosts = match subject.any_size {
            true => draw_sized(subject, dtype, LENGTH),
            false => draw(subject, dtype),
        };
        let large = |host: &Host| host.dtype == dtype && host.bytes.len() >= LEAST;
        if hosts.iter().any(large) {
            let outcome = allocates_little(subject, &hosts, device);
            log.check(&format!("{dtype} on gpu, bytes"), outcome);
        }
    }
    log
}

fn allocates_little(subject: &Subject, hosts: &[Host], device: &Device) -> Result<(), String> {
    let (used, budget, wide) = guarded(|| {
        let inputs = place(hosts, Layout::Contiguous, device)?;
        wootz::eval(&inputs)?;
        let outputs = wootz::with_device(device, || (subject.case.call.0)(&inputs))?;
        let (budget, wide) = look(&outputs);
        let before = device.memory().active;
        device.reset_peak_memory();
        wootz::eval(&outputs)?;
        Ok((device.memory().peak - before, budget, wide))
    })?;
    if let Some(wide) = wide {
        return Err(format!("in wider type than the arguments, but in memory: {wide}"));
    }
    if used > budget {
        return Err(format!("{used} bytes were allocated; results and scratch take {budget}"));
    }
    Ok(())
}

/// One array of the graph behind a case's outputs.
struct Node {
    array: Array,
    /// Whether the outputs' memory is this array's.
    result: bool,
    /// Whether an operation reads it that is not elementwise, so that it must be in memory.
    read: bool,
}

/// Bytes that the graph behind `outputs` may allocate, and an array that it widens in memory.
/// What is computed on the way counts as 16-bit: more would be the copy that is looked for. Between
/// elementwise operations nothing need be in memory.
fn look(outputs: &[Array]) -> (u64, Option<String>) {
    let mut wide = None;
    // An array's metadata lies in its node, so its address tells nodes apart.
    let mut nodes: BTreeMap<usize, Node> = BTreeMap::new();
    let mut pending: Vec<(Array, bool, bool)> =
        outputs.iter().map(|output| (output.clone(), true, false)).collect();
    while let Some((array, result, read)) = pending.pop() {
        let address = std::ptr::from_ref(array.meta()) as usize;
        let Some((op, inputs)) = array.producer() else { continue };
        let known = nodes.get(&address).map(|node| (node.result, node.read));
        let (result, read) =
            known.map_or((result, read), |known| (known.0 | result, known.1 | read));
        if known == Some((result, read)) {
            continue;
        }
        nodes.insert(address, Node { array: array.clone(), result, read });
        for input in inputs {
            let fused = op.elementwise().is_some();
            if let Some((producer, _)) = input.producer() {
                let fused = fused && producer.elementwise().is_some();
                let large = 2 * input.size() >= LEAST && !producer.is_view();
                if input.dtype() == DType::F32 && large && !fused {
                    wide = Some(format!("{} for {}", producer.name(), op.name()));
                }
            }
            // A view's memory is that of its input.
            pending.push((input, result && op.is_view(), !fused));
        }
    }
    // The outputs of one call share its scratch.
    let mut calls = BTreeMap::new();
    for (op, inputs) in nodes.values().filter_map(|node| node.array.producer()) {
        let address = std::ptr::from_ref(&*op) as *const () as usize;
        let metas: Vec<_> = inputs.iter().map(Array::meta).collect();
        let of: Vec<usize> = metas.iter().map(|meta| std::ptr::from_ref(*meta) as usize).collect();
        calls.insert((address, of), allocated(Op::scratch(&*op, &metas, true)));
    }
    (nodes.values().map(own_memory).sum::<u64>() + calls.values().sum::<u64>(), wide)
}

/// What an array itself may take.
fn own_memory(Node { array, result, read }: &Node) -> u64 {
    let Some((op, _)) = array.producer() else { return 0 };
    let size = array.dtype().size();
    match op.elementwise() {
        _ if op.is_view() => 0,
        _ if *result => allocated(array.size() * size),
        Some(_) if !read => 0,
        _ => allocated(array.size() * size.min(2)),
    }
}

/// What so many bytes take: there are 256 at least, and eight sizes from one power of two to the
/// next.
fn allocated(bytes: usize) -> u64 {
    match bytes as u64 {
        0 => 0,
        1..=256 => 256,
        bytes => bytes.next_multiple_of(16).next_multiple_of((1 << bytes.ilog2()) / 8),
    }
}

/// An operation that allocates a float32 array as large as its argument, which no graph shows.
#[derive(Debug)]
struct Hoard;

impl Op for Hoard {
    fn name(&self) -> &'static str {
        "hoard"
    }

    fn infer(&self, inputs: &[&wootz::Meta]) -> wootz::Result<wootz::op::Metas> {
        Ok(wootz::op::Metas::from_elem(inputs[0].clone(), 1))
    }

    fn cpu(&self, _: &mut wootz::CpuCall<'_>) -> wootz::Result<()> {
        Ok(())
    }

    fn gpu(&self, call: &mut wootz::gpu::GpuCall<'_>) -> wootz::Result<()> {
        let hidden = call.gpu().alloc(4 * call.output_meta(0).size() as u64)?;
        drop(hidden);
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        _: &[Option<Array>],
    ) -> wootz::Result<Vec<Option<Array>>> {
        Ok(vec![None; inputs.len()])
    }
}

#[test]
fn wide_copies_are_noticed() {
    type Call = fn(&[Array]) -> wootz::Result<Vec<Array>>;
    let Some(devices) = super::gpu::devices() else { return };
    let failures = |call: Call| {
        let case = wootz::op::Case::new("", &[&[64, 64]], call);
        let subject = Subject { op: "test", case, reference: None, any_size: false, first: true };
        check(&subject, &devices.plain).failures.len()
    };
    assert_eq!(failures(|x| Ok(vec![wootz::softmax(&x[0], -1)?])), 0);
    // In the graph: a kernel is given the widened array.
    let widened: Call = |x| {
        let wide = wootz::softmax(&x[0].astype(DType::F32)?, -1)?;
        Ok(vec![wide.astype(x[0].dtype())?])
    };
    assert_eq!(failures(widened), 2);
    // In a kernel's own code.
    assert_eq!(failures(|x| Ok(vec![Array::apply(Hoard, &[&x[0]])?])), 2);
}
