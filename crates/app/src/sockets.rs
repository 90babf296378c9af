//! The sockets of functions, as files in folders that other programs use as well. Nothing that this
//! program has not made is ever removed or replaced.
//!
//! A folder with sockets belongs to one target at a time, which holds a lock in it. A socket is
//! made under a name of our own, gets its permissions, and is then linked to the name that it is to
//! have. So it is never met with other permissions, what is there already is not replaced, and what
//! a target that was killed has left is recognised: a file that is still linked to our name for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::{Group, User, getegid, geteuid};

/// The lock of a folder.
const LOCK: &str = ".flashyard.lock";
/// Our name for a socket ends so, and begins with a dot.
const OWN: &str = ".flashyard";

/// Who may use a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    mode: u32,
    /// Numbers of user and group.
    owner: u32,
    group: u32,
}

/// Why there is no socket.
#[derive(Debug)]
pub enum SocketError {
    /// There is no such user or group: which of both, and its name.
    Unknown(&'static str, String),
    /// The folder cannot be made or locked.
    Folder(PathBuf, io::Error),
    /// Everybody may write to the folder, and replace what is in it.
    Open(PathBuf),
    /// Another target has its sockets in the folder.
    OtherTarget(PathBuf),
    /// There is something that this program has not made.
    Taken(PathBuf),
    /// The system refuses the socket, or its permissions.
    Refused(PathBuf, io::Error),
}

/// All sockets of this target.
#[derive(Debug, Default)]
pub struct Sockets(Mutex<BTreeMap<PathBuf, Folder>>);

#[derive(Debug)]
struct Folder {
    _lock: File,
    sockets: BTreeSet<PathBuf>,
}

impl Access {
    /// Permissions, and names or numbers of user and group; those of this process if not given.
    ///
    /// # Errors
    /// No user or group has this name.
    pub fn new(mode: u32, owner: Option<&str>, group: Option<&str>) -> Result<Self, SocketError> {
        let user = |name: &str| Ok(User::from_name(name)?.map(|user| user.uid.as_raw()));
        let group_of = |name: &str| Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()));
        Ok(Self {
            mode,
            owner: match owner {
                Some(name) => number("user", name, user)?,
                None => geteuid().as_raw(),
            },
            group: match group {
                Some(name) => number("group", name, group_of)?,
                None => getegid().as_raw(),
            },
        })
    }

    fn give(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.owner), Some(self.group))?;
        fs::set_permissions(path, fs::Permissions::from_mode(self.mode))
    }
}

/// The number of a user or group.
fn number(
    what: &'static str,
    name: &str,
    find: impl FnOnce(&str) -> Result<Option<u32>, nix::Error>,
) -> Result<u32, SocketError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = find(name).ok().flatten();
    found.ok_or_else(|| SocketError::Unknown(what, name.to_owned()))
}

impl Sockets {
    /// Makes a socket that listens.
    ///
    /// # Errors
    /// See [`SocketError`]; nothing is left then.
    pub fn open(&self, path: &Path, access: Access) -> Result<UnixListener, SocketError> {
        let mut folders = self.lock();
        make_folder(path)?;
        let place = Place::of(path)?;
        let folder = match folders.remove(&place.folder) {
            Some(folder) => folder,
            None => Folder::take(&place.folder)?,
        };
        let folder = folders.entry(place.folder.clone()).or_insert(folder);
        let opened = match folder.sockets.contains(&place.path) {
            true => Err(SocketError::Taken(place.path.clone())),
            false => place.clear().and_then(|()| place.listen(access)),
        };
        match &opened {
            Ok(_) => drop(folder.sockets.insert(place.path)),
            Err(_) => release(&mut folders, &place.folder),
        }
        opened
    }

    /// Gives a socket of ours other permissions.
    ///
    /// # Errors
    /// The system refuses them.
    pub fn change(&self, path: &Path, access: Access) -> Result<(), SocketError> {
        let place = Place::of(path)?;
        let folders = self.lock();
        let folder = folders.get(&place.folder);
        if !folder.is_some_and(|folder| folder.sockets.contains(&place.path)) {
            return Err(SocketError::Taken(place.path));
        }
        let refused = |error| SocketError::Refused(path.to_owned(), error);
        access.give(&place.own).map_err(refused)
    }

    /// Removes a socket of ours.
    pub fn close(&self, path: &Path) {
        let mut folders = self.lock();
        let Ok(place) = Place::of(path) else {
            return;
        };
        // What is not ours stays, whatever has become of what was.
        let _ = place.clear();
        if let Some(folder) = folders.get_mut(&place.folder) {
            folder.sockets.remove(&place.path);
        }
        release(&mut folders, &place.folder);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Folder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets another target have a folder in which we have nothing.
fn release(folders: &mut BTreeMap<PathBuf, Folder>, folder: &Path) {
    if folders
        .get(folder)
        .is_some_and(|folder| folder.sockets.is_empty())
    {
        folders.remove(folder);
    }
}

impl Folder {
    /// Makes it ours.
    fn take(folder: &Path) -> Result<Self, SocketError> {
        let refused = |error| SocketError::Folder(folder.to_owned(), error);
        let found = fs::metadata(folder).map_err(refused)?;
        // Without the sticky bit anybody can put another socket in the place of ours.
        if found.mode() & 0o1002 == 0o0002 {
            return Err(SocketError::Open(folder.to_owned()));
        }
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(folder.join(LOCK))
            .map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                _lock: lock,
                sockets: BTreeSet::new(),
            }),
            Err(TryLockError::WouldBlock) => Err(SocketError::OtherTarget(folder.to_owned())),
            Err(TryLockError::Error(error)) => Err(refused(error)),
        }
    }
}

/// Makes the folder of a socket where it is missing; who may use what is in it is the affair of
/// each socket.
fn make_folder(path: &Path) -> Result<(), SocketError> {
    let folder = path.parent().unwrap_or(path);
    let mut make = DirBuilder::new();
    let made = make.recursive(true).mode(0o755).create(folder);
    made.map_err(|error| SocketError::Folder(folder.to_owned(), error))
}

/// Where a socket is.
struct Place {
    folder: PathBuf,
    path: PathBuf,
    /// Our name for it.
    own: PathBuf,
}

impl Place {
    fn of(path: &Path) -> Result<Self, SocketError> {
        let refused = |error| SocketError::Folder(path.to_owned(), error);
        let missing = || refused(io::ErrorKind::InvalidInput.into());
        let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(missing)?;
        let folder = folder.canonicalize().map_err(refused)?;
        let own = format!(".{}{OWN}", name.to_string_lossy());
        Ok(Self {
            path: folder.join(name),
            own: folder.join(own),
            folder,
        })
    }

    /// Removes what this program has left, and nothing else.
    fn clear(&self) -> Result<(), SocketError> {
        let found = |path: &Path| match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found
                .map(Some)
                .map_err(|error| SocketError::Refused(path.to_owned(), error)),
        };
        let (shown, own) = (found(&self.path)?, found(&self.own)?);
        if own.as_ref().is_some_and(|own| !own.file_type().is_socket()) {
            return Err(SocketError::Taken(self.own.clone()));
        }
        let same =
            |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
        let ours = match (&shown, &own) {
            (Some(shown), Some(own)) => same(shown, own),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !ours {
            return Err(SocketError::Taken(self.path.clone()));
        }
        let remove = |path: &Path| {
            fs::remove_file(path).map_err(|error| SocketError::Refused(path.to_owned(), error))
        };
        if shown.is_some() {
            remove(&self.path)?;
        }
        if own.is_some() {
            remove(&self.own)?;
        }
        Ok(())
    }

    fn listen(&self, access: Access) -> Result<UnixListener, SocketError> {
        let refused = |error| SocketError::Refused(self.path.clone(), error);
        let listener = UnixListener::bind(&self.own).map_err(refused)?;
        let shown = access
            .give(&self.own)
            .and_then(|()| fs::hard_link(&self.own, &self.path));
        if let Err(error) = shown {
            // It is ours: we have made it a moment ago.
            let _ = fs::remove_file(&self.own);
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => SocketError::Taken(self.path.clone()),
                _ => refused(error),
            });
        }
        Ok(listener)
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(what, name) => write!(
                f,
                "there is no {what} `{name}` on this machine: `getent {}` shows all; a number does as well",
                match *what {
                    "user" => "passwd",
                    other => other,
                }
            ),
            Self::Folder(folder, error) => write!(
                f,
                "cannot use the folder {} for sockets: {error}; give another one",
                folder.display()
            ),
            Self::Open(folder) => write!(
                f,
                "everybody may write to the folder {}, and could put another socket in the place of this one: take that right \
                 away with `chmod o-w`, or choose another folder",
                folder.display()
            ),
            Self::OtherTarget(folder) => write!(
                f,
                "another target that runs has its sockets in {}: choose another folder, or stop that one",
                folder.display()
            ),
            Self::Taken(path) => write!(
                f,
                "{} is there already, and this program has not made it: remove it if nothing uses it, or choose another path",
                path.display()
            ),
            Self::Refused(path, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "cannot make the socket {}: {error}; run the target as a user who may write there and give files to that owner \
                 and group, or choose others",
                    path.display()
                )
            }
            Self::Refused(path, error) => {
                write!(f, "cannot make the socket {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for SocketError {}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use flashyard_testbed::Scratch;

    use super::*;

    fn mine() -> Access {
        Access::new(0o600, None, None).expect("no user is named")
    }

    fn names(folder: &Path) -> Vec<String> {
        let found = fs::read_dir(folder).expect("it is ours");
        let names = found.map(|entry| entry.expect("it is ours").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.retain(|name| name != LOCK);
        names.sort();
        names
    }

    #[test]
    fn a_socket_is_there_with_its_permissions_until_it_is_closed() {
        let scratch = Scratch::new("sockets");
        let sockets = Sockets::default();
        let path = scratch.join("new/folder/vm1.sock");
        let listener = sockets.open(&path, mine()).expect("a socket");
        UnixStream::connect(&path).expect("it listens");
        let mode = || fs::metadata(&path).expect("it is there").mode() & 0o777;
        assert_eq!(mode(), 0o600);
        let group = Access::new(0o660, None, None).expect("no user is named");
        sockets.change(&path, group).expect("it is ours");
        assert_eq!(mode(), 0o660);
        drop(listener);
        sockets.close(&path);
        assert_eq!(names(path.parent().expect("a folder")), [""; 0]);
    }

    /// What is left at any moment of making or removing a socket is removed by the next one.
    #[test]
    fn what_a_killed_target_has_left_is_removed() {
        let scratch = Scratch::new("stale");
        let path = scratch.join("vm1.sock");
        let own = scratch.join(".vm1.sock.flashyard");
        for linked in [true, false] {
            drop(UnixListener::bind(&own).expect("a socket"));
            if linked {
                fs::hard_link(&own, &path).expect("linked");
            }
            let sockets = Sockets::default();
            let listener = sockets.open(&path, mine()).expect("a socket");
            UnixStream::connect(&path).expect("it listens");
            drop(listener);
            sockets.close(&path);
        }
    }

    #[test]
    fn what_is_not_ours_stays() {
        let scratch = Scratch::new("foreign");
        let path = scratch.join("vm1.sock");
        let own = scratch.join(".vm1.sock.flashyard");
        let other = scratch.join("other");
        let make: [&dyn Fn(); 6] = [
            &|| fs::write(&path, "a file").expect("ours"),
            &|| fs::create_dir(&path).expect("ours"),
            &|| drop(UnixListener::bind(&path).expect("a socket of another program")),
            &|| std::os::unix::fs::symlink(&other, &path).expect("ours"),
            // Ours was there, and somebody has put another one in its place.
            &|| {
                drop(UnixListener::bind(&own).expect("ours"));
                drop(UnixListener::bind(&path).expect("another one"));
            },
            &|| fs::write(&own, "a file with our name").expect("ours"),
        ];
        for make in make {
            make();
            let before = names(&scratch);
            let sockets = Sockets::default();
            let refused = sockets.open(&path, mine());
            assert!(matches!(refused, Err(SocketError::Taken(_))), "{refused:?}");
            sockets.close(&path);
            assert_eq!(names(&scratch), before);
            for name in before {
                let path = scratch.join(name);
                let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
                removed.expect("ours");
            }
        }
    }

    #[test]
    fn a_folder_has_one_target() {
        let scratch = Scratch::new("folder");
        let [one, other] = [Sockets::default(), Sockets::default()];
        let [a, b] = ["a.sock", "b.sock"].map(|name| scratch.join(name));
        let _listener = one.open(&a, mine()).expect("a socket");
        let refused = other.open(&b, mine());
        assert!(matches!(refused, Err(SocketError::OtherTarget(_))));
        one.close(&a);
        let _listener = other.open(&b, mine()).expect("it is free");
        let refused = one.open(&a, mine());
        assert!(matches!(refused, Err(SocketError::OtherTarget(_))));
    }

    #[test]
    fn a_folder_that_everybody_may_change_is_refused() {
        let scratch = Scratch::new("open");
        let set = |mode| {
            fs::set_permissions(&scratch, fs::Permissions::from_mode(mode)).expect("ours");
        };
        let sockets = Sockets::default();
        let path = scratch.join("a.sock");
        set(0o777);
        let refused = sockets.open(&path, mine());
        assert!(matches!(refused, Err(SocketError::Open(_))));
        set(0o1777);
        sockets.open(&path, mine()).expect("as /tmp is");
        sockets.close(&path);
    }

    #[test]
    fn users_and_groups_have_names_or_numbers() {
        let root = Access::new(0o600, Some("root"), Some("0")).expect("root is there");
        assert_eq!((root.owner, root.group), (0, 0));
        for (owner, group) in [(Some("no-such-user"), None), (None, Some("no-such-group"))] {
            let unknown = Access::new(0o600, owner, group);
            assert!(matches!(unknown, Err(SocketError::Unknown(..))));
        }
    }
}
