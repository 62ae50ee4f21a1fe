"""Odd words, names, folders and surroundings that a generated line may have."""

WORDS = ["hello", "=", "a=", "=b", "--lr=3", "--seed", "3", "-h", "--version", "algo", "run.seed=1",
    "algo.name=ppo",
             "policy=x", "code.algo=x", "algo.=1", ".algo=1", "algo..lr=1", "algo.lr.x=1", "a.b=c", "seed:1", "é=1", "",
             "algo.preset=trl", "algo.preset=", "algo.preset=verl", "ＡＬＧＯ=ppo", "resume=nowhere", "resume=",
                 "\x1b[2J=1",
             "K" * 5000 + "=1", "algo." + "k" * 5000 + "=1", "env.kwargs.render_mode=human",
                 "env.kwargs.x.y=1"]  # fmt: skip
NAMES = ["", " ", ".", "..", "./nowhere.py", "nowhere.py", "file.txt", "folder", "../ppo", "_groups",
    "__init__", "PPO",
             "os.path", "no.such.module", "rlkit.run", "a" * 300, "a." * 2000 + "b", "\x1b[31m", "学习", "ppo,dqn",
                 "-", "*", "~nobody-here/x.py", "./" + "x" * 300 + ".py",
             "ppo.py", "/dev/null.py", "x" * 5000 + ".py", "nul\udcffl", ".py", "None", "1", "ppo ", "a..b",
                 "os."]  # fmt: skip

FOLDERS = ["nowhere", "folder", "file.txt", "link", "dangling", "", ".", "..", "/", "/dev/null", "/proc/self",
               "x" * 300, "x/" * 2100, "\x1b[2J", "学习", "\udcff", "~nobody-here", "a\nb", "table/checkpoints",
               "table/config.yaml", "~nobody-here/x", "~nobody-here=3", "a=" * 200]  # fmt: skip
FILES = ["~nobody-here/x.gif", "x" * 300 + "/x.gif", "x" * 300 + ".gif", "nowhere/x.gif", "folder",
             "\x1b[2J.gif"]  # fmt: skip
OUTS = ["~nobody-here/c", "x" * 300, "x/" * 2100, "file.txt", "file.txt/c", "dangling", "/dev/null", "/proc/self",
            "\x1b[2J", "\udcff", "table"]  # fmt: skip
CONFIGS = ["nowhere.yaml", "file.txt", "folder", "torn.jsonl", "dangling", "link", "/dev/null", "/dev/zero", "",
               "~nobody-here/x", "table/config.yaml", "table/metrics.jsonl", "table", "x" * 300, "\x1b[2J"]  # fmt: skip
RANGES = ["1e-4..1e-2", "0.1..0.9:linear", "1..4", "1..4:log", "0..1:log", "4..2", "1..1", "..", "1..", "1..2..3",
              "nan..1", "-1..1", "1..1e400", "1..10000000000000000", "1e-4..1e-2:cubic", "1,2", "1;2", "a,b",
              "8,8;16,16", "true,false", "none,1", "1,1", ";", ",1", "[1,2];[3]"]  # fmt: skip
MODELS = ["0.5b", "72b", "135m", "QWEN3-8B", "8c", "words", "words/model", "words/model/config.json", "table",
          "file.txt", "nowhere/x", "rows.jsonl", "x.json", ""]  # fmt: skip
PLACES = ["a b", "it's", '"', "a\nb", "学习", "é", "-x", "a=b", "$HOME", "%s", "[0]", "*", "a,b;c", "\x1b[2J", "#"]
WRAPPED = ["env.wrappers=TimeLimit env.wrapper_kwargs.TimeLimit.max_episode_steps=3", "env.wrappers=TimeLimit",
           "env.wrapper_kwargs.TimeLimit.max_episode_steps=3", "env.wrappers=Nothing,TimeLimit", "env.wrapper_kwargs=3",
           "env.wrappers=TimeLimit env.wrapper_kwargs.TimeLimit.max_episode_steps=x", "env.wrappers=file.txt:W",
           "env.wrappers=TimeLimit env.wrapper_kwargs.X.y=3", "env.wrappers=os:getcwd",
           "env.kwargs.max_episode_steps=x",
           "env.wrappers=FrameStackObservation env.wrapper_kwargs.FrameStackObservation.stack_size=0",
           "env.wrappers=NormalizeObservation", "env.wrappers=RescaleAction", "env.kwargs.self=1", "env.kwargs.=1",
           "env.kwargs.sutton_barto_reward=true", "env.kwargs.a.b.c=1", "env.wrappers=RecordVideo"]  # fmt: skip
ENVIRONS = [{"OMP_NUM_THREADS": text} for text in ("4,2", "", "abc", "0", "-3", "99999999", "1.5")]
ENVIRONS += [{"COLUMNS": text} for text in ("1", "0", "-5", "x", "100000")] + [{"TERM": "dumb"}, {"NO_COLOR": "1"}]
ENVIRONS += [{"TERM": text} for text in ("", "nothing", "\x1b")] + [{"TMPDIR": text} for text in ("", "/nowhere")]
ENVIRONS += [{"HOME": text} for text in ("", "/nowhere", "relative", "/dev/null")] + [{"XDG_CACHE_HOME": "/dev/null"}]
ENVIRONS += [{"TZ": text} for text in ("Asia/Kathmandu", "nothing", "")] + [{"LC_ALL": text} for text in ("C", "tr_TR")]
ENVIRONS += [{"RANK": "x"}, {"WORLD_SIZE": "x"}, {"LOCAL_RANK": "-1"}, {"CUDA_VISIBLE_DEVICES": "x"}]
