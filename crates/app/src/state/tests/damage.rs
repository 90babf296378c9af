//! Damaged stores: what is served is what was stored, and the copy of what is refused is.

use flashyard_time::Rng;

use super::*;

/// Everything that a store tells.
type Content = (Uuid, Inventory, Life, BTreeMap<u32, Counted>);

fn content(mut state: State) -> Result<Content, StateError> {
    let inventory = state.inventory()?;
    Ok((
        state.target_uuid(),
        inventory,
        state.life()?,
        state.counted()?,
    ))
}

fn open(directory: &Path, if_damaged: IfDamaged) -> Result<Content, StateError> {
    State::open(directory, if_damaged).and_then(content)
}

/// A store of a dozen pages with something of each kind, and its copy.
fn filled(directory: &Path) -> State {
    let mut state = State::open(directory, IfDamaged::Refuse).expect("a new store");
    let life = state.begin_run().expect("stored");
    let spec = PoolSpec {
        kind: None,
        key: None,
        compression: None,
        chunk: None,
        name: "fast".into(),
        devices: vec!["ram0".into()],
    };
    state.put_pool(&spec, uuid::Uuid::new_v4()).expect("stored");
    let mut counted = BTreeMap::new();
    for place in 0..8_u32 {
        let name = format!("tenant{place}");
        let id = state.put_tenant(&tenant(&name)).expect("stored").id;
        let reads = u64::from(place);
        counted.insert(
            id,
            Counted {
                reads,
                ..Counted::default()
            },
        );
        for number in 0..10 {
            let volume = volume(&format!("{name}-{number}"), &name);
            state.add_volume(&volume, 100).expect("stored");
            state
                .set_volume_phase(&volume.name, Phase::Ready)
                .expect("stored");
        }
        state
            .remove(Kind::Volume, &format!("{name}-4"))
            .expect("removed");
    }
    state.put_counted(&life, &counted).expect("stored");
    state.renew_copy().expect("there is space");
    state
}

/// The files of a store as they are now, in another directory.
fn snapshot(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("the temporary directory is writable");
    for entry in fs::read_dir(from).expect("it is ours") {
        let entry = entry.expect("it is ours");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("there is space");
    }
}

/// Damages a file as disks, controllers and people do.
fn damage(file: &Path, rng: &mut Rng) {
    let mut bytes = fs::read(file).expect("it is there");
    let place = |rng: &mut Rng, most: usize| rng.below(most as u64) as usize;
    let length = bytes.len();
    match rng.below(4) {
        0 => {
            for _ in 0..=rng.below(4) {
                bytes[place(rng, length)] ^= 1 << rng.below(8);
            }
        }
        1 => bytes.truncate(place(rng, length)),
        2 => {
            let page = place(rng, length / 4096) * 4096;
            bytes[page..page + 4096].fill(0);
        }
        _ => {
            let start = place(rng, length);
            let end = length.min(start + 1 + place(rng, 64));
            bytes[start..end].fill_with(|| rng.below(256) as u8);
        }
    }
    fs::write(file, bytes).expect("there is space");
}

/// 160 damaged stores as they are between two changes: each is refused, or served as it was stored.
/// Who is refused has the same from the copy, and keeps the damaged file.
#[test]
fn no_damaged_store_is_served() {
    let (home, victim) = (Scratch::new("damage"), Scratch::new("damage-victim"));
    let stored = content(filled(&home)).expect("readable");
    let mut served = 0;
    for seed in 0..160 {
        snapshot(&home, &victim);
        damage(&victim.join(STORE), &mut Rng::new(seed));
        match open(&victim, IfDamaged::Refuse) {
            Ok(found) => {
                assert!(
                    found == stored,
                    "seed {seed} is served and is not what was stored"
                );
                served += 1;
            }
            Err(StateError::Refused(file, _, true)) => {
                let damaged = fs::read(&file).expect("it is there");
                let restored = open(&victim, IfDamaged::Restore).expect("the copy is sound");
                assert!(
                    restored == stored,
                    "seed {seed}: the copy is not what was stored"
                );
                let kept = fs::read(victim.join("state.db.damaged")).unwrap_or_default();
                assert!(file.exists() && kept == damaged, "seed {seed}");
            }
            // A version that is not there yet looks like damage.
            Err(StateError::TooNew(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!((1..80).contains(&served), "{served} of 160 were served");
}

/// Cut in the middle of a change, with a part of it in the file already, and then the file or its
/// journal damaged.
#[test]
fn no_store_that_was_cut_and_damaged_is_served() {
    let names = ["cut", "cut-running", "cut-victim"];
    let [home, running, victim] = names.map(|name| Scratch::new(&format!("damage-{name}")));
    let mut state = filled(&home);
    // Pages go to the file before the change is whole.
    state
        .connection
        .pragma_update(None, "cache_size", 1)
        .expect("set");
    let cut = state.change(|transaction| {
        transaction.execute("UPDATE volume SET nsid = nsid + 100", [])?;
        transaction.execute("UPDATE volume SET phase = 'deleting'", [])?;
        snapshot(&home, &running);
        Err::<(), _>(StateError::Damaged("cut here".into()))
    });
    assert!(matches!(cut, Err(StateError::Damaged(_))));
    let stored = content(state).expect("readable");
    let journal = "state.db-journal";
    let half = fs::read(running.join(STORE)).expect("it is there");
    assert!(half != fs::read(home.join(STORE)).expect("it is there"));
    snapshot(&running, &victim);
    // Who only looks sees what a start would, and leaves that to it.
    let looked = || State::rehearse(&victim).and_then(content);
    assert!(looked().expect("it can be repaired") == stored);
    assert!(fs::read(victim.join(STORE)).expect("it is there") == half);
    let left = |of: &Path| fs::metadata(of.join(journal)).map(|it| it.len()).ok();
    assert!(left(&victim) > Some(0) && left(&victim) == left(&running));
    assert!(open(&victim, IfDamaged::Refuse).expect("it is repaired") == stored);
    let mut refused = 0;
    for seed in 0..160 {
        snapshot(&running, &victim);
        let file = if seed % 2 == 0 { STORE } else { journal };
        damage(&victim.join(file), &mut Rng::new(seed));
        let looked = looked();
        let opened = open(&victim, IfDamaged::Refuse);
        assert_eq!(
            looked.is_ok(),
            opened.is_ok(),
            "seed {seed}, {file}: {looked:?}"
        );
        match opened {
            Ok(found) => assert!(found == stored, "seed {seed}, {file}"),
            Err(StateError::Refused(..)) => {
                let restored = open(&victim, IfDamaged::Restore).expect("the copy is sound");
                assert!(restored == stored, "seed {seed}, {file}");
                refused += 1;
            }
            Err(StateError::TooNew(_)) => {}
            Err(error) => panic!("seed {seed}, {file}: {error}"),
        }
    }
    assert!(
        (20..160).contains(&refused),
        "{refused} of 160 were refused"
    );
}

/// A damaged copy is no reason to refuse a sound store, is made anew, and never takes a store's
/// place.
#[test]
fn a_damaged_copy_is_made_anew() {
    let home = Scratch::new("damage-copy");
    let copy = home.join("state.copy.db");
    let stored = content(filled(&home)).expect("readable");
    fs::write(&copy, b"no database").expect("there is space");
    let mut state = State::open(&home, IfDamaged::Restore).expect("the store is sound");
    state.renew_copy().expect("there is space");
    assert!(content(state).expect("readable") == stored);
    let sound = fs::read(&copy).expect("it is there");

    let half = &sound[..sound.len() / 2];
    fs::write(home.join(STORE), half).expect("there is space");
    fs::write(&copy, half).expect("there is space");
    let refused = open(&home, IfDamaged::Restore);
    assert!(
        matches!(refused, Err(StateError::Refused(_, _, false))),
        "{refused:?}"
    );
    assert_eq!(
        fs::read(home.join(STORE)).expect("it is there"),
        half,
        "nothing was changed"
    );
    fs::remove_file(home.join(STORE)).expect("it is ours");
    fs::write(&copy, &sound).expect("there is space");
    let gone = open(&home, IfDamaged::Refuse);
    assert!(
        matches!(gone, Err(StateError::Refused(_, _, true))),
        "an empty store in its place"
    );
    assert!(open(&home, IfDamaged::Restore).expect("the copy is sound") == stored);
}

/// What is damaged while the target runs gets no checksum that makes it look sound.
#[test]
fn a_change_does_not_cover_damage() {
    let mut state = State::in_memory().expect("a store");
    state.put_tenant(&tenant("db")).expect("stored");
    let sql = "UPDATE tenant SET nsid_next = 77";
    state.connection.execute(sql, []).expect("behind its back");
    let refused = state.put_tenant(&tenant("lab"));
    assert!(
        matches!(refused, Err(StateError::Damaged(_))),
        "{refused:?}"
    );
}

/// Who only looks does not wait for ever for a program that holds the store.
#[test]
fn a_store_that_is_held_is_not_waited_for_without_end() {
    let home = Scratch::new("damage-held");
    drop(filled(&home));
    let holder = Connection::open(home.join(STORE)).expect("it is sound");
    holder.execute_batch("BEGIN EXCLUSIVE").expect("it is free");
    let held = opening::rehearse_within(&home, std::time::Duration::from_millis(20));
    assert!(matches!(held, Err(StateError::Busy(_))), "{held:?}");
    drop(holder);
    State::rehearse(&home).expect("it is free");
}
