//! The CPU's part: results against doubles and references, layouts, threads, gradients.

use wootz::op::Tolerance;
use wootz::{DType, Device};

use super::data::Host;
use super::layouts::{Layout, constant_along_broadcast};
use super::tolerance::{Against, compare, compare_specials};
use super::transforms;
use super::{
    Log, SIZES, SPECIALS, Subject, draw, draw_sized, follows_dtype, gradients, guarded,
    like_doubles, magnitudes, place, run, same_bits, widen,
};

/// Checks one case in all its dtypes.
pub(crate) fn check(subject: &Subject) -> Log {
    let mut log = Log::new(subject);
    let dtypes = subject.case.dtypes;
    for &dtype in dtypes {
        in_dtype(subject, dtype, &mut log);
    }
    if dtypes.iter().any(|dtype| dtype.is_float()) {
        gradients::check_doubles(subject, &mut log);
    } else {
        log.note_gradients("—");
    }
    transforms::check_vmap(subject, &mut log);
    if subject.any_size {
        sizes(subject, &mut log);
    }
    log
}

fn in_dtype(subject: &Subject, dtype: DType, log: &mut Log) {
    let (case, cpu) = (&subject.case, Device::cpu());
    let hosts = draw(subject, dtype);
    let base = match run(case, &hosts, Layout::Contiguous, &cpu) {
        Ok(base) => base,
        Err(message) => {
            log.check(&format!("{dtype} on cpu"), Err(message));
            return;
        }
    };
    let float = dtype.is_float() && follows_dtype(case);
    let scales = magnitudes(subject, &hosts);
    let scales = scales.as_deref();
    if float && like_doubles(subject, dtype) {
        let wide = run(case, &widen(case, &hosts), Layout::Contiguous, &cpu);
        let outcome = wide.and_then(|wide| {
            compare_all(&base, &wide, scales, case.tolerance, Against::Double, dtype)
        });
        log.check(&format!("{dtype} on cpu against float64"), outcome);
    }
    if let Some(reference) = &subject.reference {
        let want = reference.call(&hosts, &base);
        let outcome = compare_all(&base, &want, scales, case.tolerance, Against::Double, dtype);
        log.check(&format!("{dtype} on cpu against the reference"), outcome);
        if dtype == DType::F32 && float {
            let wide = widen(case, &hosts);
            let outcome = run(case, &wide, Layout::Contiguous, &cpu).and_then(|got| {
                let want = reference.call(&wide, &got);
                compare_all(&got, &want, scales, case.tolerance, Against::Double, DType::F64)
            });
            log.check("float64 on cpu against the reference", outcome);
        }
    }
    one_thread(subject, &hosts, &base, dtype, log);
    composed(subject, &hosts, dtype, log);
    for layout in Layout::VIEWS {
        let place = format!("{dtype} on cpu, {layout:?}");
        let outcome = match layout {
            Layout::Broadcast => {
                let constant: Vec<Host> = hosts.iter().map(constant_along_broadcast).collect();
                run(case, &constant, Layout::Contiguous, &cpu)
                    .and_then(|want| same_bits(&run(case, &constant, layout, &cpu)?, &want))
            }
            _ => run(case, &hosts, layout, &cpu).and_then(|got| same_bits(&got, &base)),
        };
        log.check(&place, outcome);
    }
    if float {
        specials(subject, &hosts, dtype, log);
        gradients::check_dtype(subject, dtype, &hosts, &cpu, log);
    }
}

/// Lengths around a tile's, in the case's first dtype.
fn sizes(subject: &Subject, log: &mut Log) {
    let (case, dtype) = (&subject.case, subject.case.dtypes[0]);
    let Some(reference) = &subject.reference else { return };
    for size in SIZES {
        let hosts = draw_sized(subject, dtype, size);
        let outcome = run(case, &hosts, Layout::Contiguous, &Device::cpu()).and_then(|got| {
            let want = reference.call(&hosts, &got);
            let scales = magnitudes(subject, &hosts);
            compare_all(&got, &want, scales.as_deref(), case.tolerance, Against::Double, dtype)
        });
        log.check(&format!("{dtype} on cpu, {size} elements"), outcome);
    }
}

/// The kernel against the same function made of plainer operations, where the operation has one.
fn composed(subject: &Subject, hosts: &[Host], dtype: DType, log: &mut Log) {
    let cpu = Device::cpu();
    let pairs = guarded(|| {
        let outputs = (subject.case.call.0)(&place(hosts, Layout::Contiguous, &cpu)?)?;
        let mut pairs = Vec::new();
        for output in &outputs {
            let Some((op, inputs)) = output.producer() else { continue };
            if outputs.len() == 1
                && let Some(composed) = op.composed(&inputs)
            {
                // Of several results the first is what a case of one has.
                if let Some(composed) = composed?.first() {
                    pairs.push((Host::read(output)?, Host::read(composed)?));
                }
            }
        }
        Ok(pairs)
    });
    let outcome = pairs.and_then(|pairs| {
        if pairs.is_empty() {
            return Ok(false);
        }
        let against = Against::Gradient { terms: 1 };
        let class = subject.case.tolerance;
        (pairs.iter())
            .try_for_each(|(got, want)| compare(got, want, None, class, against, dtype))
            .map(|()| true)
    });
    if outcome != Ok(false) {
        log.check(&format!("{dtype} on cpu against its composition"), outcome.map(|_| ()));
    }
}

/// The same bits on one thread as on two. The harness runs with two.
fn one_thread(subject: &Subject, hosts: &[Host], base: &[Host], dtype: DType, log: &mut Log) {
    wootz::set_threads(1);
    let alone = run(&subject.case, hosts, Layout::Contiguous, &Device::cpu());
    wootz::set_threads(2);
    let outcome = alone.and_then(|alone| same_bits(&alone, base));
    log.check(&format!("{dtype} on cpu, one thread against two"), outcome);
}

/// NaN and infinities come through as in doubles.
fn specials(subject: &Subject, hosts: &[Host], dtype: DType, log: &mut Log) {
    let (case, cpu) = (&subject.case, Device::cpu());
    if !like_doubles(subject, dtype) {
        return;
    }
    for special in SPECIALS {
        let Some(hosts) = super::with_specials(subject, hosts, special) else { return };
        let outcome = run(case, &hosts, Layout::Contiguous, &cpu).and_then(|got| {
            let want = run(case, &widen(case, &hosts), Layout::Contiguous, &cpu)?;
            got.iter().zip(&want).try_for_each(|(got, want)| compare_specials(got, want))
        });
        log.check(&format!("{dtype} on cpu with {special:?}"), outcome);
    }
}

/// Compares all outputs.
pub(crate) fn compare_all(
    got: &[Host],
    want: &[Host],
    scales: Option<&[Host]>,
    class: Tolerance,
    against: Against,
    dtype: DType,
) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} outputs, expected {}", got.len(), want.len()));
    }
    got.iter().zip(want).enumerate().try_for_each(|(i, (got, want))| {
        let scale = scales.and_then(|scales| scales.get(i));
        compare(got, want, scale, class, against, dtype).map_err(|text| match i {
            0 => text,
            _ => format!("output {i}: {text}"),
        })
    })
}
