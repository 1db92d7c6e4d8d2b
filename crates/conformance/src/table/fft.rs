//! Fourier transforms.

use wootz::fft::{self, Istft, Norm, Stft};
use wootz::{Array, PadMode};

use super::{one, rows};
use crate::call::{Call, Outcome, Refusal, sayable, unsayable};

rows! {
    "fft.fft" => |c| along(c, fft::fft),
    "fft.ifft" => |c| along(c, fft::ifft),
    "fft.rfft" => |c| along(c, fft::rfft),
    "fft.irfft" => |c| along(c, fft::irfft),
    "fft.fft2" => |c| over(c, fft::fft2),
    "fft.ifft2" => |c| over(c, fft::ifft2),
    "fft.rfft2" => |c| over(c, fft::rfft2),
    "fft.irfft2" => |c| over(c, fft::irfft2),
    "fft.fftn" => |c| over(c, fft::fftn),
    "fft.ifftn" => |c| over(c, fft::ifftn),
    "fft.rfftn" => |c| over(c, fft::rfftn),
    "fft.irfftn" => |c| over(c, fft::irfftn),
    "fft.fftshift" => |c| one(fft::fftshift(&c.array("a")?, c.axes("axes")?)),
    "fft.ifftshift" => |c| one(fft::ifftshift(&c.array("a")?, c.axes("axes")?)),
    "fft.fftfreq" => |c| one(fft::fftfreq(c.size("n")?, c.float("d")?)),
    "fft.rfftfreq" => |c| one(fft::rfftfreq(c.size("n")?, c.float("d")?)),
    "fft.stft" => |c| one(fft::stft(&c.array("x")?, &Stft {
        n_fft: c.size("n_fft")?,
        hop_length: size_opt(c, "hop_length")?,
        win_length: size_opt(c, "win_length")?,
        window: c.array_opt("window")?,
        center: c.flag("center")?,
        pad_mode: match c.word("pad_mode")? {
            "constant" => PadMode::Constant,
            "edge" => PadMode::Edge,
            "reflect" => PadMode::Reflect,
            "symmetric" => PadMode::Symmetric,
            other => return unsayable("pad_mode", other),
        },
        norm: norm(c)?,
        onesided: c.value("onesided").and_then(|value| value.as_bool()),
    })),
    "fft.istft" => |c| one(fft::istft(&c.array("stft_matrix")?, &Istft {
        n_fft: size_opt(c, "n_fft")?,
        hop_length: size_opt(c, "hop_length")?,
        win_length: size_opt(c, "win_length")?,
        window: c.array_opt("window")?,
        center: c.flag("center")?,
        norm: norm(c)?,
        onesided: c.value("onesided").and_then(|value| value.as_bool()).unwrap_or(true),
        length: size_opt(c, "length")?,
    })),
}

type Along = fn(&Array, Option<usize>, i64, Norm) -> wootz::Result<Array>;
type Over = fn(&Array, Option<&[usize]>, Option<&[i64]>, Norm) -> wootz::Result<Array>;

fn along(c: &Call<'_>, function: Along) -> Outcome {
    one(function(&c.array("a")?, size_opt(c, "n")?, c.int("axis")?, norm(c)?))
}

fn over(c: &Call<'_>, function: Over) -> Outcome {
    let sizes = if c.has("s") { Some(c.shape("s")?) } else { None };
    c.ignore("s");
    let axes = c.ints_opt("axes")?;
    one(function(&c.array("a")?, sizes.as_deref(), axes.as_deref(), norm(c)?))
}

fn norm(c: &Call<'_>) -> Result<Norm, Refusal> {
    Ok(c.word("norm")?.parse()?)
}

fn size_opt(c: &Call<'_>, name: &str) -> Result<Option<usize>, Refusal> {
    c.int_opt(name)?.map(|value| sayable(name, value)).transpose()
}
