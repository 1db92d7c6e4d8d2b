//! `wootz kernels`: the GPU kernels of operations, as they reach the driver.
//!
//! The operations' test cases run on a simulated GPU that computes nothing and notes what was
//! launched, so this works without a GPU and shows what an Apple GPU would be given; as SPIR-V, what
//! other GPUs would be, of which few have the 8x8 matrices that Apple's have.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use wootz::gpu::{Collected, Collector, GpuOptions, to_msl, to_spirv};
use wootz::op::{Case, CaseInput, Entry};
use wootz::{Array, DType, Device, with_device};

use crate::common::Common;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The operation whose kernels are printed; without it, the kernels of all are listed.
    #[arg(value_name = "OP")]
    operation: Option<String>,

    #[command(flatten)]
    language: Language,

    /// Only with inputs of this dtype, such as float32.
    #[arg(long, value_name = "DTYPE", value_parser = dtype)]
    dtype: Option<DType>,

    /// Only kernels whose names contain this.
    #[arg(long, short, value_name = "NAME")]
    kernel: Option<String>,

    /// With bounds, loop and division checks compiled in, as for a checked device.
    #[arg(long)]
    checked: bool,

    /// Write to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Language {
    /// As they are written (the default).
    #[arg(long)]
    wgsl: bool,

    /// As Apple's driver gets them.
    #[arg(long)]
    msl: bool,

    /// As a Vulkan driver gets them, without cooperative matrices: the binary of one kernel.
    #[arg(long)]
    spirv: bool,
}

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    common.expect_none("kernels are those of a simulated GPU")?;
    ensure!(
        !options.checked || options.language.msl || options.language.spirv,
        "--checked changes MSL and SPIR-V; the WGSL has no checks in it"
    );
    if let Some(path) = &options.output {
        // In memory first: a failure leaves an old file alone.
        let mut text = Vec::new();
        write(options, common, &mut text)?;
        return std::fs::write(path, text).with_context(|| format!("cannot write {path:?}"));
    }
    let stdout = io::stdout();
    if options.language.spirv && options.operation.is_some() && stdout.is_terminal() {
        bail!("SPIR-V is binary: give a file with --output, or send it through a pipe");
    }
    match write(options, common, &mut stdout.lock()) {
        // A reader such as `head` may have enough before the end.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }
}

/// Writes all that is asked for.
fn write(options: &Options, common: &Common, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut entries = wootz::ops::registered();
    entries.sort_by_key(|entry| entry.name);
    let Some(name) = &options.operation else { return list(&entries, options, out) };
    let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
        bail!("{}", unknown(name, &entries));
    };
    let kernels = Launches::new(options)?.of(entry, options)?;
    if options.language.spirv {
        let [kernel] = &kernels[..] else {
            let names: Vec<String> =
                kernels.iter().map(|kernel| format!("\n  {}", name_of(kernel))).collect();
            let count = names.len();
            bail!("{name} has {count} such kernels; choose one with --kernel:{}", names.concat());
        };
        return Ok(out.write_all(&translate(kernel, options)?)?);
    }
    if kernels.is_empty() {
        common.say(format!("{name} has no such kernels"));
    }
    for (number, kernel) in kernels.iter().enumerate() {
        let gap = if number > 0 { "\n" } else { "" };
        writeln!(out, "{gap}// {}", name_of(kernel))?;
        let text = translate(kernel, options)?;
        out.write_all(text.trim_ascii_end())?;
        writeln!(out)?;
    }
    Ok(out.flush()?)
}

/// A line for each kernel of each operation, as soon as it is known: it takes a while.
fn list(entries: &[Entry], options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let language = match &options.language {
        Language { msl: true, .. } => "MSL",
        Language { spirv: true, .. } => "SPIR-V",
        _ => "WGSL",
    };
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or_default();
    let mut line = |[operation, threads, memory, buffers, bytes, kernel]: [&str; 6]| {
        let numbers = format!("{threads:>7}  {memory:>16}  {buffers:>7}  {bytes:>8}");
        writeln!(out, "{operation:width$}  {numbers}  {kernel}")
    };
    line(["OPERATION", "THREADS", "WORKGROUP MEMORY", "BUFFERS", language, "KERNEL"])?;
    let launches = Launches::new(options)?;
    for entry in entries {
        for kernel in launches.of(entry, options)? {
            let name = name_of(&kernel);
            let cost = kernel.cost().map_err(anyhow::Error::msg).with_context(|| name.clone())?;
            line([
                entry.name,
                &cost.threads_per_group().to_string(),
                &format!("{} B", cost.workgroup_bytes),
                &cost.buffers().to_string(),
                &format!("{} B", translate(&kernel, options)?.len()),
                &name,
            ])?;
        }
    }
    Ok(())
}

/// A device that computes nothing and notes what is launched.
struct Launches {
    collector: Arc<Collector>,
    device: Device,
}

impl Launches {
    fn new(options: &Options) -> wootz::Result<Launches> {
        let collector = Arc::new(Collector::default());
        let simulator = Some(collector.clone() as _);
        let without_matrices = options.language.spirv;
        let options = GpuOptions { simulator, without_matrices, ..Default::default() };
        let device = Device::gpu_with(0, &options)?;
        Ok(Launches { collector, device })
    }

    /// The kernels that an operation's cases launch, in the order of their names.
    fn of(&self, entry: &Entry, options: &Options) -> anyhow::Result<Vec<Collected>> {
        let mut ran = false;
        for case in &entry.cases {
            let wanted = |dtype: &&DType| options.dtype.is_none_or(|wanted| wanted == **dtype);
            // There are no doubles on a GPU.
            for &dtype in case.dtypes.iter().filter(wanted).filter(|dtype| **dtype != DType::F64) {
                ran = true;
                launch(case, dtype, &self.device)
                    .with_context(|| format!("{}, case '{}' in {dtype}", entry.name, case.label))?;
            }
        }
        if let (false, Some(dtype), Some(_)) = (ran, options.dtype, &options.operation) {
            bail!("{} does not take {dtype} on a GPU", entry.name);
        }
        let mut kernels = self.collector.take();
        if let Some(part) = &options.kernel {
            // A whole name may be a part of others.
            let whole = kernels.iter().any(|kernel| name_of(kernel) == *part);
            let named = |name: String| if whole { name == *part } else { name.contains(part) };
            kernels.retain(|kernel| named(name_of(kernel)));
        }
        Ok(kernels)
    }
}

/// Runs a case for its launches. No kernel computes anything, so values do not matter.
fn launch(case: &Case, dtype: DType, device: &Device) -> wootz::Result<()> {
    let input = |input: &CaseInput| {
        let dtype = input.dtype.unwrap_or(dtype);
        let bytes = vec![0; input.shape.iter().product::<usize>() * dtype.size()];
        Array::from_bytes_on(&bytes, &input.shape, dtype, device)
    };
    let inputs = case.inputs.iter().map(input).collect::<wootz::Result<Vec<_>>>()?;
    let outputs = with_device(device, || (case.call.0)(&inputs))?;
    wootz::eval(&outputs)
}

fn translate(kernel: &Collected, options: &Options) -> anyhow::Result<Vec<u8>> {
    let source = &kernel.launch.source;
    let translated = match &options.language {
        Language { msl: true, .. } => {
            to_msl(source, options.checked).map(|msl| msl.text.into_bytes())
        }
        Language { spirv: true, .. } => to_spirv(source, options.checked)
            .map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect()),
        _ => Ok(source.as_bytes().to_vec()),
    };
    translated.map_err(anyhow::Error::msg).with_context(|| name_of(kernel))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn name_of(kernel: &Collected) -> String {
    kernel.launch.key.to_string()
}

fn dtype(name: &str) -> Result<DType, String> {
    DType::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("known are {}", known.join(", "))
    })
}

/// An error with the names that are closest.
fn unknown(name: &str, entries: &[Entry]) -> String {
    let likeness = |entry: &Entry| {
        let contained = entry.name.contains(name) || name.contains(entry.name);
        strsim::jaro_winkler(name, entry.name) + if contained { 0.2 } else { 0.0 }
    };
    let mut near: Vec<_> = entries.iter().map(|entry| (likeness(entry), entry.name)).collect();
    near.retain(|(likeness, _)| *likeness > 0.8);
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let near: Vec<&str> = near.iter().take(5).map(|(_, name)| *name).collect();
    match near.is_empty() {
        true => format!("there is no operation {name:?}; `wootz kernels` lists all"),
        false => format!("there is no operation {name:?}; did you mean {}?", near.join(", ")),
    }
}
