//! The numbers that MLX draws with key 42.

use super::recorded::{GUMBEL, LAPLACE, NORMAL, TRUNCATED_NORMAL};
use super::*;
use crate::testing::devices;

/// Keys of seed 42 on every device.
fn keys() -> Vec<Array> {
    devices().iter().map(|device| ops::to_device(&key(42).unwrap(), device).unwrap()).collect()
}

fn float_bits(x: &Array) -> Vec<u32> {
    x.to_vec::<f32>().unwrap().iter().map(|x| x.to_bits()).collect()
}

/// A number that depends on every bit (FNV-1a over words), for many draws in little space.
fn checksum(words: impl IntoIterator<Item = u32>) -> u64 {
    let step = |hash: u64, word: u32| (hash ^ word as u64).wrapping_mul(0x100_0000_01b3);
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[test]
fn keys_split_as_in_mlx() -> Result<()> {
    assert_eq!(key((1 << 40) + 5)?.to_vec::<u32>()?, [256, 5]);
    let zero = split(&key(0)?, 2)?.to_vec::<u32>()?;
    assert_eq!(zero, [0xf71f4ea9, 0x39a405d9, 0xa20e4081, 0x4bdfae2f]);
    for key in keys() {
        let two = split(&key, 2)?.to_vec::<u32>()?;
        assert_eq!(two, [0x92fb20ea, 0xdb4c98db, 0x0f38d913, 0x0ff68959]);
        let three = [3134548294, 3733159049, 3746501087, 894150801, 801545058, 2363201431];
        assert_eq!(split(&key, 3)?.to_vec::<u32>()?, three);
        assert_eq!(split(&key, 0)?.shape(), [0, 2]);
    }
    let wrong = Array::new([1u32, 2, 3])?;
    assert!(split(&wrong, 2).is_err());
    assert!(split(&Array::new([1, 2])?, 2).is_err());
    Ok(())
}

#[test]
fn uniform_gives_the_bits_of_mlx() -> Result<()> {
    for key in keys() {
        let draw = |n: usize| uniform(0.0, 1.0, &[n], DType::F32, Some(&key)).unwrap();
        assert_eq!(float_bits(&draw(1)), [0x3eda7c09]);
        assert_eq!(float_bits(&draw(3)), [0x3f12fb21, 0x3dcd1fc3, 0x3d738d91]);
        assert_eq!(float_bits(&draw(4)), [0x3f12fb21, 0x3f5b4c99, 0x3d738d91, 0x3d7f6896]);
        let five = [0x3f3ad569, 0x3f5e837d, 0x3e49270e, 0x3e552ea2, 0x3e3f1a6e];
        assert_eq!(float_bits(&draw(5)), five);
        let halves = uniform(0.0, 1.0, &[3], DType::F16, Some(&key))?;
        let halves = astype(&halves, DType::F32)?.to_vec::<f32>()?;
        assert_eq!(halves, [0.57421875, 0.10015869140625, 0.0594482421875]);
        let brains = uniform(0.0, 1.0, &[3], DType::BF16, Some(&key))?;
        let brains = astype(&brains, DType::F32)?.to_vec::<f32>()?;
        assert_eq!(brains, [0.57421875, 0.10009765625, 0.0595703125]);
        let low = Array::from_slice_on(&[0.0f32, 1.0], &[2], key.device())?;
        let high = Array::from_slice_on(&[1.0f32, 5.0], &[2, 1], key.device())?;
        let x = uniform(&low, &high, &[2, 2], DType::F32, Some(&key))?.to_vec::<f32>()?;
        assert_eq!(x, [0.574_144_4, 1.0, 0.297_305_9, 1.249_422_4]);
        assert!(uniform(&low, &high, &[2], DType::F32, Some(&key)).is_err());
        assert!(uniform(0.0, 1.0, &[2], DType::I32, Some(&key)).is_err());
    }
    Ok(())
}

#[test]
fn an_unkeyed_sequence_starts_at_its_seed() -> Result<()> {
    seed(7);
    let x = uniform(0.0, 1.0, &[2], DType::F32, None)?;
    assert_eq!(x.to_vec::<f32>()?, [0.514_767_05, 0.078_491_21]);
    let x = uniform(0.0, 1.0, &[2], DType::F32, None)?;
    assert_eq!(x.to_vec::<f32>()?, [0.801_293_73, 0.184_429_65]);
    Ok(())
}

type Draw = fn(&[usize], DType, Option<&Array>) -> Result<Array>;

/// Continuous distributions: 160 recorded numbers, and checksums of 65,536 numbers in `float32`,
/// `float16` and `bfloat16`.
const CONTINUOUS: [(&str, Draw, &[u32; 160], [u64; 3]); 4] = [
    (
        "normal",
        |shape, dtype, key| normal(shape, dtype, 0.0, 1.0, key),
        &NORMAL,
        [0x62923e707de2836f, 0x1cd34b92c1ba2325, 0xedeaad94ecbc2325],
    ),
    ("gumbel", gumbel, &GUMBEL, [0x16980270925b8a41, 0x69ee02e71be38325, 0x9f716bedcbb22325]),
    (
        "laplace",
        |shape, dtype, key| laplace(shape, dtype, 0.0, 1.0, key),
        &LAPLACE,
        [0xbab64c389bb6f3c2, 0x03cb846be926e325, 0x3891b96d12ba2325],
    ),
    (
        "truncated_normal",
        |shape, dtype, key| truncated_normal(-2.0, 2.0, shape, dtype, key),
        &TRUNCATED_NORMAL,
        [0x33923b6662eeef43, 0x32b87158413bc325, 0xd642473f9b722325],
    ),
];

#[test]
fn continuous_distributions_give_the_bits_of_mlx() -> Result<()> {
    for key in keys() {
        let key = Some(&key);
        let four = [0x3e3f6c0f, 0x3f885cdc, 0xbfc7978f, 0xbfc4848f];
        assert_eq!(float_bits(&normal(&[4], DType::F32, 0.0, 1.0, key)?), four);
        let four = [0x3f16c99a, 0x3feed94d, 0xbf84d009, 0xbf82a386];
        assert_eq!(float_bits(&gumbel(&[4], DType::F32, key)?), four);
        let four = [0x3e369dfd, 0x3f7f0370, 0xbfb44694, 0xbfb1eaa6];
        assert_eq!(float_bits(&truncated_normal(-2.0, 2.0, &[4], DType::F32, key)?), four);
        let four = [0xbe245c2f, 0xbf9fe6d7, 0x40084630, 0x40053b75];
        assert_eq!(float_bits(&laplace(&[4], DType::F32, 0.0, 1.0, key)?), four);
        for (name, draw, recorded, sums) in CONTINUOUS {
            assert_eq!(float_bits(&draw(&[160], DType::F32, key)?), recorded, "{name}");
            for (dtype, sum) in [DType::F32, DType::F16, DType::BF16].into_iter().zip(sums) {
                let x = astype(&draw(&[65_536], dtype, key)?, DType::F32)?;
                assert_eq!(checksum(float_bits(&x)), sum, "{name} in {dtype}");
            }
        }
    }
    Ok(())
}

#[test]
fn parameters_of_continuous_distributions_as_in_mlx() -> Result<()> {
    for key in keys() {
        let device = key.device().clone();
        let key = Some(&key);
        let sums = [
            (DType::F32, 0xf78cd5f59b5174bc),
            (DType::F16, 0xb6e4003d2f6ee325),
            (DType::BF16, 0xa864c23cec012325),
        ];
        for (dtype, sum) in sums {
            let x = astype(&normal(&[65_536], dtype, 1.5, 0.7, key)?, DType::F32)?;
            assert_eq!(checksum(float_bits(&x)), sum, "{dtype}");
        }
        let x = laplace(&[3], DType::F32, 2.0, 3.0, key)?.to_vec::<f32>()?;
        assert_eq!(x[1], 6.823_569_3);
        let bounds = [
            (-1.0, 3.0, 0x9d0caab954a45b9e),
            (0.5, 0.75, 0x417e0b8c6b4ec071),
            (-10.0, 10.0, 0x5f2b1511d560aa1f),
            (f64::NEG_INFINITY, 0.0, 0x6cf4962a5949e0d7),
        ];
        for (lower, upper, sum) in bounds {
            let x = truncated_normal(lower, upper, &[4096], DType::F32, key)?;
            assert_eq!(checksum(float_bits(&x)), sum, "{lower}..{upper}");
        }
        // Bounds that are arrays pass through the more exact error function of this library.
        let bound = Array::from_slice_on(&[2.0f32], &[1], &device)?;
        let x = truncated_normal(&negative(&bound)?, &bound, &[160], DType::F32, key)?;
        for (x, want) in x.to_vec::<f32>()?.iter().zip(TRUNCATED_NORMAL.map(f32::from_bits)) {
            assert!((x - want).abs() < 1e-5 * (1.0 + want.abs()), "{x} is not {want}");
        }
    }
    assert!(normal(&[3], DType::I32, 0.0, 1.0, None).is_err());
    let loc = Array::new([1.0f32, 2.0, 3.0])?;
    assert!(normal(&[2], DType::F32, &loc, 1.0, None).is_err());
    Ok(())
}

#[test]
fn discrete_distributions_are_exact() -> Result<()> {
    for key in keys() {
        let device = key.device().clone();
        let key = Some(&key);
        let x = randint(0, 100, &[8], DType::I32, key)?.to_vec::<i32>()?;
        assert_eq!(x, [68, 59, 26, 24, 76, 28, 4, 0]);
        let x = randint(5, 1, &[4], DType::I32, key)?.to_vec::<i32>()?;
        assert_eq!(x, [5, 5, 5, 5]);
        let x = randint(0.5, 3.7, &[4], DType::I32, key)?.to_vec::<i32>()?;
        assert_eq!(x, [2, 2, 0, 0]);
        let x = randint(i32::MIN, i32::MAX, &[4], DType::I32, key)?.to_vec::<i32>()?;
        assert_eq!(x, [318447872, 1531746560, -1892099840, -1879668352]);
        let x = bernoulli(0.3, &[10], key)?.to_vec::<bool>()?;
        assert_eq!(x.map_bits(), 0b0010010100);
        assert_eq!(bernoulli(1.0, &[5], key)?.to_vec::<bool>()?, [true; 5]);
        let x = permutation(10, key)?.to_vec::<u32>()?;
        assert_eq!(x, [5, 2, 7, 1, 6, 8, 0, 9, 4, 3]);
        assert_eq!(permutation(0, key)?.shape(), [0]);
        let x = Array::from_slice_on(&(0..12).collect::<Vec<i32>>(), &[3, 4], &device)?;
        let x = shuffle(&x, 1, key)?.to_vec::<i32>()?;
        assert_eq!(x, [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9]);
    }
    let p = Array::new([1, 0])?;
    assert!(bernoulli(&p, &[2], None).is_err());
    assert!(randint(0, 10, &[4], DType::F32, None).is_err());
    Ok(())
}

#[test]
fn categorical_has_both_algorithms_of_mlx() -> Result<()> {
    for key in keys() {
        let values = [0.1f32, 2.0, -1.0, 0.5, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let two = Array::from_slice_on(&values, &[2, 5], key.device())?;
        let one = ops::slice(&two, &[0, 0], &[1, 5], &[1, 1])?;
        let row = reshape(&one, &[5])?;
        let draw = |logits: &Array, axis: i64, samples: Samples<'_>| {
            let x = categorical(logits, axis, samples, Some(&key)).unwrap();
            (x.shape().to_vec(), x.to_vec::<u32>().unwrap())
        };
        assert_eq!(draw(&two, -1, Samples::One), (vec![2], vec![4, 4]));
        assert_eq!(draw(&row, -1, Samples::One), (vec![], vec![1]));
        assert_eq!(draw(&one, -1, Samples::One), (vec![1], vec![1]));
        let many = draw(&two, -1, Samples::Many(3));
        assert_eq!(many, (vec![2, 3], vec![1, 3, 3, 4, 2, 4]));
        let shaped = draw(&two, -1, Samples::Shape(&[3, 2]));
        assert_eq!(shaped, (vec![3, 2], vec![1, 4, 1, 4, 1, 4]));
        let row_shaped = draw(&row, -1, Samples::Shape(&[2, 3]));
        assert_eq!(row_shaped, (vec![2, 3], vec![3, 4, 4, 1, 1, 1]));
        let first = draw(&two, 0, Samples::Many(2));
        assert_eq!(first, (vec![5, 2], vec![1, 1, 1, 0, 1, 0, 1, 1, 1, 1]));
        let ten = draw(&row, -1, Samples::Many(10));
        assert_eq!(ten, (vec![10], vec![2, 1, 1, 4, 4, 1, 1, 1, 1, 2]));
        let narrow = astype(&one, DType::F16)?;
        assert_eq!(draw(&narrow, -1, Samples::Many(4)), (vec![1, 4], vec![1, 4, 0, 0]));
        assert!(categorical(&two, 3, Samples::One, Some(&key)).is_err());
        assert!(categorical(&two, -1, Samples::Shape(&[3, 4]), Some(&key)).is_err());
    }
    Ok(())
}

#[test]
fn categorical_draws_what_mlx_draws() -> Result<()> {
    for key in keys() {
        let logits = |shape: &[usize], step: usize, modulus: usize, scale: f32| {
            let count = shape.iter().product();
            let values: Vec<f32> =
                (0..count).map(|i: usize| (i * step % modulus) as f32 / scale).collect();
            Array::from_slice_on(&values, shape, key.device())
        };
        let draw = |logits: &Array, samples: Samples<'_>| -> Result<(Vec<u32>, u64)> {
            let x = categorical(logits, -1, samples, Some(&key))?.to_vec::<u32>()?;
            Ok((x[..5].to_vec(), checksum(x)))
        };
        let (first, sum) = draw(&logits(&[64, 500], 7919, 1009, 64.0)?, Samples::One)?;
        assert_eq!((first, sum), (vec![40, 186, 326, 334, 25], 0x213c3df102522389));
        let rows = logits(&[3, 4], 5, 7, 4.0)?;
        let (first, sum) = draw(&rows, Samples::Many(10_000))?;
        assert_eq!((first, sum), (vec![1, 1, 3, 2, 1], 0x4d58c42e6bff76e0));
        let row = reshape(&ops::slice(&rows, &[0, 0], &[1, 4], &[1, 1])?, &[4])?;
        let (first, sum) = draw(&row, Samples::Many(10_000))?;
        assert_eq!((first, sum), (vec![1, 3, 1, 1, 1], 0x0750874598fa967a));
    }
    Ok(())
}

/// Truth values as the bits of a number, the first the highest.
trait MapBits {
    fn map_bits(&self) -> u32;
}

impl MapBits for Vec<bool> {
    fn map_bits(&self) -> u32 {
        self.iter().fold(0, |bits, &bit| bits << 1 | bit as u32)
    }
}
