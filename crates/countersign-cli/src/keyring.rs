//! Which identity signs a journal, and where its key is.
//!
//! Keys of ours lie in the state folder, away from the journals: who can change a journal should not
//! have its key. A key is on the disk before the first journal names it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use countersign::seed::Seed;
use countersign::stderr;
use countersign_log::hash::Hash;
use countersign_log::hex;
use countersign_log::journal::{self, JournalOwner, Seal};
use countersign_log::keys::{Identity, PublicKey};

/// Longest file that is read for a seed: 64 digits and a newline, with room for blanks.
const SEED_FILE_OCTETS_MAX: u64 = 256;

/// In a folder of journals: whose they are.
const FOLDER_IDENTITY: &str = "identity";

/// A journal that is to be opened.
pub(crate) struct Plan {
    /// The file; in a folder of journals, this process's own.
    pub(crate) path: PathBuf,
    /// Whose journal it is.
    pub(crate) seal: Seal,
    /// Where the newest head is kept beside the key. A key that was given does not need a state folder;
    /// without one there is no copy.
    pub(crate) key_head: Option<PathBuf>,
}

/// What was said on the command line and in the environment.
pub(crate) struct Wanted<'a> {
    pub(crate) name: &'a str,
    pub(crate) journal: Option<&'a Path>,
    pub(crate) seed_file: Option<&'a Path>,
    pub(crate) seed: Option<Seed>,
    pub(crate) unsealed: bool,
    pub(crate) run_id: &'a str,
}

/// Finds the journal's path and its key, making a key where there is none yet.
///
/// # Errors
/// One line: what, where, what to do.
pub(crate) fn plan(wanted: Wanted<'_>) -> Result<Plan, String> {
    let state = state_folder();
    let target = match wanted.journal {
        Some(path) => path.to_owned(),
        None => default_folder(state.as_ref().map_err(String::clone)?, wanted.name)?,
    };
    let is_folder = wanted.journal.is_none() || journal::is_folder(&target);
    let path = if is_folder {
        journal::run_path(&target, wanted.run_id).map_err(|error| error.to_string())?
    } else {
        target.clone()
    };
    let given = match (wanted.seed_file, wanted.seed) {
        (Some(file), _) => Some(read_seed(file)?),
        (None, Some(seed)) => Some(*seed.bytes()),
        (None, None) => None,
    };
    let keys = state.map(|state| Keys {
        folder: state.join("keys"),
    });
    let ours = given.is_none() && !wanted.unsealed;
    let seal = match given {
        Some(seed) => Seal::Sealed(Identity::from_seed(&seed)),
        None if wanted.unsealed => Seal::Unsealed { seed: random()? },
        None if is_folder => {
            Seal::Sealed(keys.as_ref().map_err(String::clone)?.of_folder(&target)?)
        }
        None => keys.as_ref().map_err(String::clone)?.of_journal(&path)?,
    };
    let identity = match &seal {
        Seal::Sealed(identity) => identity.public(),
        Seal::Unsealed { seed } => match owner(&path)? {
            Some(owner) => owner.identity,
            None => Identity::from_seed(seed).public(),
        },
    };
    let key_head = match keys.and_then(|keys| keys.head_path(identity, &path)) {
        Err(why) if !ours => {
            stderr::say(format_args!(
                "no copy of the newest head is kept beside a key: {why}"
            ));
            None
        }
        path => Some(path?),
    };
    Ok(Plan {
        path,
        seal,
        key_head,
    })
}

/// 32 random octets.
pub(crate) fn random() -> Result<[u8; 32], String> {
    countersign::random().map_err(|error| format!("the system gives no random octets: {error}"))
}

fn state_folder() -> Result<PathBuf, String> {
    let absolute = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("countersign")).ok_or_else(|| {
        "neither XDG_STATE_HOME nor HOME names a folder for keys; set one of them to an absolute path".into()
    })
}

fn default_folder(state: &Path, name: &str) -> Result<PathBuf, String> {
    let plain =
        !name.is_empty() && !name.starts_with('.') && !name.contains('/') && !name.contains('\0');
    if !plain || name == FOLDER_IDENTITY || name == "keys" {
        return Err(format!(
            "--name {name:?} cannot name a folder of journals; give --journal FILE or DIR/"
        ));
    }
    Ok(state.join(name))
}

/// The seed in a file.
fn read_seed(file: &Path) -> Result<[u8; 32], String> {
    let length = fs::metadata(file)
        .map_err(|error| format!("seed file {}: {error}", file.display()))?
        .len();
    let text = if length <= SEED_FILE_OCTETS_MAX {
        fs::read(file).map_err(|error| format!("seed file {}: {error}", file.display()))?
    } else {
        Vec::new()
    };
    hex::decode(text.trim_ascii()).map_err(|_| {
        format!(
            "seed file {} must hold 64 hex digits and nothing else",
            file.display()
        )
    })
}

/// The folder of our keys.
struct Keys {
    folder: PathBuf,
}

impl Keys {
    /// The key of a journal: that of its header, or a new one where there is no journal.
    fn of_journal(&self, journal: &Path) -> Result<Seal, String> {
        match owner(journal)? {
            // What its header holds counts; the random octets are for a journal that is not there.
            Some(owner) if owner.unsealed => Ok(Seal::Unsealed { seed: random()? }),
            Some(owner) => self.read(owner.identity).map(Seal::Sealed),
            None => self.make().map(Seal::Sealed),
        }
    }

    /// The key that all journals of a folder share. The first process makes it; of two at once, one wins.
    fn of_folder(&self, folder: &Path) -> Result<Identity, String> {
        let file = folder.join(FOLDER_IDENTITY);
        if let Some(identity) = read_identity(&file)? {
            return self.read(identity);
        }
        let ours = self.make()?;
        let public = ours.public();
        let draft = folder.join(format!("{FOLDER_IDENTITY}.{}", std::process::id()));
        let failed = |error: io::Error| format!("{}: {error}", file.display());
        write_durably(&draft, format!("{public}\n").as_bytes()).map_err(failed)?;
        let won = fs::hard_link(&draft, &file);
        fs::remove_file(&draft).map_err(failed)?;
        match won {
            Ok(()) => Ok(ours),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // The key that nobody will use goes; it is no harm if it stays.
                let _ = fs::remove_file(self.path(public));
                let identity =
                    read_identity(&file)?.ok_or_else(|| format!("{} is gone", file.display()))?;
                self.read(identity)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn path(&self, identity: PublicKey) -> PathBuf {
        self.folder.join(format!("{identity}.seed"))
    }

    fn read(&self, identity: PublicKey) -> Result<Identity, String> {
        let path = self.path(identity);
        if !path.exists() {
            return Err(format!(
                "the key of identity {identity} is not here: put its seed into {}, or give --seed-file or \
                 WITNESS_LOG_IDENTITY_SEED_ENV",
                path.display()
            ));
        }
        let found = Identity::from_seed(&read_seed(&path)?);
        if found.public() == identity {
            Ok(found)
        } else {
            Err(format!(
                "{} holds the seed of {}, not of {identity}",
                path.display(),
                found.public()
            ))
        }
    }

    /// Makes a key. It is on the disk when this returns.
    fn make(&self) -> Result<Identity, String> {
        let seed = random()?;
        let identity = Identity::from_seed(&seed);
        let path = self.path(identity.public());
        let made = private_folder(&self.folder)
            .and_then(|()| write_durably(&path, format!("{}\n", hex::encode(&seed)).as_bytes()));
        made.map(|()| identity)
            .map_err(|error| format!("cannot keep a new key in {}: {error}", path.display()))
    }

    /// Where the newest head of a journal is kept: by its identity, since a new journal in the place of
    /// another has its own, and by its place, since a copy elsewhere has its own life.
    fn head_path(&self, identity: PublicKey, journal: &Path) -> Result<PathBuf, String> {
        let heads = self.folder.join(format!("{identity}.heads"));
        let absolute = std::path::absolute(journal)
            .map_err(|error| format!("{}: {error}", journal.display()))?;
        private_folder(&heads).map_err(|error| format!("{}: {error}", heads.display()))?;
        let place = Hash::of(&[absolute.as_os_str().as_encoded_bytes()]).to_hex();
        let name = journal.file_name().unwrap_or_default().to_string_lossy();
        Ok(heads.join(format!("{name}.{}", &place[..16])))
    }
}

fn owner(journal: &Path) -> Result<Option<JournalOwner>, String> {
    journal::identity_of(journal).map_err(|error| error.to_string())
}

fn read_identity(file: &Path) -> Result<Option<PublicKey>, String> {
    match fs::read_to_string(file) {
        Ok(text) => PublicKey::from_hex(text.trim())
            .map(Some)
            .map_err(|error| format!("{} must hold an identity: {error}", file.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// A new file that only we can read, with its name on the disk too.
fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
