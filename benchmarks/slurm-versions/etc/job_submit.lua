-- Refuses jobs of the partition "strict" as centres do: a feature is demanded, a size of memory forbidden.
function slurm_job_submit(job, partitions, user)
    if job.partition ~= "strict" then
        return slurm.SUCCESS
    end
    if job.features == nil or job.features == "" then
        slurm.log_user("This partition has nodes of two kinds.\nPlease say which, with -C native or -C virtual.\nSee the centre's documentation: \"Kinds of nodes\".")
        return slurm.ERROR
    end
    if job.pn_min_memory ~= nil and job.pn_min_memory ~= slurm.NO_VAL64 then
        slurm.log_user("Do not ask for memory: leave out --mem and --mem-per-cpu.")
        return 2044
    end
    slurm.log_user("NOTICE: maintenance next Tuesday")
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
    return slurm.SUCCESS
end

return slurm.SUCCESS
