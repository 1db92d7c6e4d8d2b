//! The GPU's part: results against the CPU, layouts, gradients, and proof that a GPU did the work.

use wootz::gpu::GpuOptions;
use wootz::op::Op;
use wootz::{Array, DType, Device};

use super::cpu::compare_all;
use super::data::Host;
use super::layouts::{Layout, constant_along_broadcast};
use super::tolerance::{Against, compare_specials};
use super::transforms;
use super::{
    Log, SIZES, SPECIALS, Subject, draw, draw_sized, fails_with, follows_dtype, gradients, guarded,
    magnitudes, place, run, same_bits, with_bad_index, with_specials,
};

/// The devices of the GPU part, all of one adapter.
pub(crate) struct Devices {
    /// As shipped.
    pub(crate) plain: Device,
    /// With runtime checks compiled into the kernels.
    pub(crate) checked: Device,
    /// That refuses bindings above 64 KiB.
    pub(crate) small: Device,
}

impl Devices {
    /// Opens them. Without a GPU the reason is returned.
    pub(crate) fn open() -> Result<Devices, String> {
        let text = |error: wootz::Error| error.to_string();
        let best = Device::gpu().map_err(text)?;
        let index = best.as_gpu().map_or(0, |gpu| gpu.summary().index);
        let open = |options: GpuOptions| Device::gpu_with(index, &options).map_err(text);
        let devices = Devices {
            plain: open(GpuOptions::default())?,
            checked: open(GpuOptions { checked: true, ..Default::default() })?,
            small: open(GpuOptions { max_binding_bytes: Some(65_536), ..Default::default() })?,
        };
        for device in [&devices.plain, &devices.checked, &devices.small] {
            device.as_gpu().unwrap().trace_kernels(true);
        }
        Ok(devices)
    }
}

/// The GPU part's devices. Without a GPU it is left out, which is a failure in CI.
pub(crate) fn devices() -> Option<Devices> {
    match Devices::open() {
        Ok(devices) => Some(devices),
        Err(reason) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: GPU cases: {reason}");
            None
        }
        Err(reason) => panic!("no GPU in CI: {reason}"),
    }
}

/// Where an operation's work was done; of several cases the last of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Only metadata changed.
    View,
    /// All kernels that ran belong to one node or one fused run.
    Kernel,
    /// Several operations with kernels ran one after the other.
    Composed,
    /// The bytes went through the host.
    Host,
}

/// Checks one case in all its dtypes; also tells where the work was done.
pub(crate) fn check(subject: &Subject, devices: &Devices) -> (Log, Option<Work>) {
    let mut log = Log::new(subject);
    let mut work = None;
    for (number, &dtype) in subject.case.dtypes.iter().enumerate() {
        if dtype != DType::F64 {
            let done = in_dtype(subject, number, dtype, devices, &mut log);
            // A reference case may put other operations around the one it checks.
            if !subject.case.label.starts_with("reference") {
                work = work.max(done);
            }
        }
    }
    for size in SIZES.into_iter().filter(|_| subject.any_size) {
        let (case, dtype) = (&subject.case, subject.case.dtypes[0]);
        let hosts = draw_sized(subject, dtype, size);
        let outcome = run(case, &hosts, Layout::Contiguous, &Device::cpu()).and_then(|want| {
            let got = run(case, &hosts, Layout::Contiguous, &devices.plain)?;
            let scales = magnitudes(subject, &hosts);
            compare_all(&got, &want, scales.as_deref(), case.tolerance, Against::Device, dtype)
        });
        log.check(&format!("{dtype} on gpu, {size} elements"), outcome);
    }
    // Rules for batches do not know devices; one case shows that what they build runs there.
    if subject.first {
        transforms::check_vmap_on_gpu(subject, &devices.plain, &mut log);
    }
    (log, work)
}

fn in_dtype(
    subject: &Subject,
    number: usize,
    dtype: DType,
    devices: &Devices,
    log: &mut Log,
) -> Option<Work> {
    let case = &subject.case;
    let hosts = draw(subject, dtype);
    // The CPU's part reports a case that does not run there.
    let cpu = run(case, &hosts, Layout::Contiguous, &Device::cpu()).ok()?;
    let (base, work) = match observed(subject, &hosts, &devices.plain) {
        Ok(base) => base,
        Err(message) => {
            log.check(&format!("{dtype} on gpu"), Err(message));
            return None;
        }
    };
    let scales = magnitudes(subject, &hosts);
    let outcome =
        compare_all(&base, &cpu, scales.as_deref(), case.tolerance, Against::Device, dtype);
    log.check(&format!("{dtype} on gpu against cpu"), outcome);
    // All layouts in the first dtype, one in each other: every variant is compiled for each.
    let views = &Layout::VIEWS;
    let views = if number == 0 { &views[..] } else { &views[number % 4..number % 4 + 1] };
    for &layout in views {
        let outcome = match layout {
            Layout::Broadcast => {
                let constant: Vec<Host> = hosts.iter().map(constant_along_broadcast).collect();
                run(case, &constant, Layout::Contiguous, &devices.plain).and_then(|want| {
                    same_bits(&run(case, &constant, layout, &devices.plain)?, &want)
                })
            }
            _ => run(case, &hosts, layout, &devices.plain).and_then(|got| same_bits(&got, &base)),
        };
        log.check(&format!("{dtype} on gpu, {layout:?}"), outcome);
    }
    if number == 0 {
        let outcome = run(case, &hosts, Layout::Contiguous, &devices.checked)
            .and_then(|got| same_bits(&got, &base));
        log.check(&format!("{dtype} on a checked gpu"), outcome);
        let fits = |host: &Host| host.bytes.len() <= 32_768;
        if hosts.iter().all(fits) && base.iter().all(fits) {
            let outcome = run(case, &hosts, Layout::Contiguous, &devices.small)
                .and_then(|got| same_bits(&got, &base));
            log.check(&format!("{dtype} on a gpu with bindings of 64 KiB"), outcome);
        }
        if let Some((hosts, error)) = with_bad_index(case, &hosts) {
            for (name, device) in [("gpu", &devices.plain), ("a checked gpu", &devices.checked)] {
                let outcome = fails_with(case, &hosts, &error, device);
                log.check(&format!("{dtype} on {name}, an index out of range"), outcome);
            }
        }
    }
    if dtype.is_float() && follows_dtype(case) {
        specials(subject, &hosts, dtype, devices, log);
        gradients::check_dtype(subject, dtype, &hosts, &devices.plain, log);
    }
    Some(work)
}

/// Runs a case while watching the device: kernels must run, and nothing may come back before the
/// results are read.
fn observed(
    subject: &Subject,
    hosts: &[Host],
    device: &Device,
) -> Result<(Vec<Host>, Work), String> {
    let gpu = device.as_gpu().unwrap();
    let (outputs, has_values, on_host, prepared, before, after) = guarded(|| {
        let inputs = place(hosts, Layout::Contiguous, device)?;
        let before = gpu.counters();
        let outputs = wootz::with_device(device, || (subject.case.call.0)(&inputs))?;
        // What the case evaluated by itself was preparation.
        let prepared = gpu.counters().operations;
        let has_values = outputs.iter().any(|output| has_op(output, |op| !op.is_view()));
        let on_host = outputs.iter().any(|output| has_op(output, |op| op.host()));
        wootz::eval(&outputs)?;
        let after = gpu.counters();
        let outputs = outputs.iter().map(Host::read).collect::<wootz::Result<Vec<_>>>()?;
        Ok((outputs, has_values, on_host, prepared, before, after))
    })?;
    let came_back = after.downloaded_bytes - before.downloaded_bytes;
    let sent = after.uploaded_bytes - before.uploaded_bytes;
    let work = match after.operations - prepared {
        _ if came_back > 0 || on_host => Work::Host,
        0 => Work::View,
        1 => Work::Kernel,
        _ => Work::Composed,
    };
    if on_host {
        return Ok((outputs, work));
    }
    if came_back > 0 {
        return Err(format!("{came_back} bytes came back to the host before the result was read"));
    }
    if sent > 64 {
        return Err(format!("{sent} bytes were sent to the device after the inputs"));
    }
    let launched = after.dispatches - before.dispatches;
    if launched == 0 && has_values && outputs.iter().any(|output| output.size() > 0) {
        return Err("no kernel ran on the device".into());
    }
    Ok((outputs, work))
}

/// Whether an operation of some kind is behind an array.
fn has_op(output: &Array, wanted: impl Fn(&dyn Op) -> bool) -> bool {
    let mut pending = vec![output.clone()];
    // Graphs of cases are small, but shared nodes could be many times on a path.
    let mut budget = 10_000;
    while let (Some(array), true) = (pending.pop(), budget > 0) {
        budget -= 1;
        match array.producer() {
            Some((op, _)) if wanted(&*op) => return true,
            Some((_, inputs)) => pending.extend(inputs),
            None => {}
        }
    }
    false
}

fn specials(subject: &Subject, hosts: &[Host], dtype: DType, devices: &Devices, log: &mut Log) {
    let case = &subject.case;
    for special in SPECIALS {
        let Some(hosts) = with_specials(subject, hosts, special) else { return };
        let Ok(want) = run(case, &hosts, Layout::Contiguous, &Device::cpu()) else { return };
        let outcome = run(case, &hosts, Layout::Contiguous, &devices.plain).and_then(|got| {
            got.iter().zip(&want).try_for_each(|(got, want)| compare_specials(got, want))
        });
        log.check(&format!("{dtype} on gpu with {special:?}"), outcome);
    }
}
