//! A small file system of its own, to be filled.
//!
//! Owns: mounting it in memory, filling it, unmounting, also what a process left that was killed. Leaves
//! to others: what is stored there. Needs root.

use anyhow::{Context, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Begins the name under which it is mounted; the owner's process id follows.
const PREFIX: &str = "queen-small-disk-";

/// A file system in memory; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

fn run(program: &str, arguments: &[&str], folder: &Path) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).arg(folder).output();
    let output = output.with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", folder.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Unmounts what processes left that live no more.
fn sweep() -> anyhow::Result<()> {
    for line in std::fs::read_to_string("/proc/mounts")?.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(folder)) = (words.next(), words.next()) else { continue };
        let owner = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            run("umount", &["-l"], Path::new(folder))?;
        }
    }
    Ok(())
}

impl SmallDisk {
    /// Mounts one of so many megabytes at a folder, which is made.
    pub fn mount(folder: &Path, megabytes: u32) -> anyhow::Result<SmallDisk> {
        sweep()?;
        std::fs::create_dir_all(folder)?;
        let (size, name) =
            (format!("size={megabytes}m"), format!("{PREFIX}{}", std::process::id()));
        run("mount", &["-t", "tmpfs", "-o", &size, &name], folder)?;
        Ok(SmallDisk(folder.to_owned()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all space but `left` bytes, or less than those when others write at the same time.
    pub fn fill(&self, left: u64) -> anyhow::Result<()> {
        let mut ballast = std::fs::File::create(self.ballast()).context("fill the disk")?;
        let block = vec![1u8; 1 << 20];
        // In parts, each as long as there is room for it then: whose disk this is goes on writing.
        loop {
            let room = self.free()?.saturating_sub(left).min(block.len() as u64) as usize;
            match ballast.write(&block[..room]) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(why) if why.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(why) => return Err(why).context("fill the disk"),
            }
        }
    }

    /// Bytes that are free.
    fn free(&self) -> anyhow::Result<u64> {
        let path = std::ffi::CString::new(self.0.as_os_str().as_encoded_bytes())?;
        // SAFETY: statvfs writes one plain struct, which zeros are a value of.
        let mut space: libc::statvfs = unsafe { std::mem::zeroed() };
        let got = unsafe { libc::statvfs(path.as_ptr(), &mut space) };
        anyhow::ensure!(got == 0, "statvfs: {}", std::io::Error::last_os_error());
        Ok(space.f_bavail * space.f_frsize)
    }

    /// Gives the space back.
    pub fn clear(&self) -> anyhow::Result<()> {
        match std::fs::remove_file(self.ballast()) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(()),
            done => Ok(done?),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l"], &self.0);
    }
}
